"""VRF tables: deterministic, persistent, and never in foreign use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.netlink.planning.observed import OWNED_GROUP, Link, LinkKind, NamespaceView, Observed
from actors.netlink.planning.steps import SaveTables
from actors.netlink.planning.vrf_tables import RESERVED_TABLES, assign_tables, candidate_tables
from tests.actors.netlink.builders import l3vni, state, without_underlay

RED = state(l3vnis=(l3vni(),))


def vrf(name: str, table: int, group: int = 0) -> Link:
    return Link(1, name, kind=LinkKind.VRF, table=table, group=group)


def seen(*links: Link, **fields: object) -> Observed:
    return Observed(router=NamespaceView({link.name: link for link in links}), **fields)  # type: ignore[arg-type]


def test_a_new_vrf_gets_ten_million_plus_its_vni() -> None:
    assert assign_tables(RED, seen()) == {"red": 10_000_100}


def test_a_persisted_table_has_precedence() -> None:
    assert assign_tables(RED, seen(tables={"red": 4711})) == {"red": 4711}


def test_an_existing_vrf_keeps_its_table_despite_the_persisted_one() -> None:
    assert assign_tables(RED, seen(vrf("red", 12, OWNED_GROUP), tables={"red": 4711})) == {"red": 12}


def test_a_table_of_a_foreign_vrf_or_with_foreign_routes_is_avoided() -> None:
    taken = seen(vrf("customer", 10_000_100), busy_tables=frozenset({4711}), tables={"red": 4711})
    assert assign_tables(RED, taken) == {"red": 10_000_100 + (1 << 24)}


def test_a_new_vrf_does_not_get_the_persisted_table_of_another() -> None:
    both = state(l3vnis=(l3vni("amber", 100), l3vni("red", 101)))
    assert assign_tables(both, seen(tables={"red": 10_000_100})) == {"red": 10_000_100, "amber": 26_777_316}


def test_every_table_that_a_vrf_may_get_is_looked_at_first() -> None:
    candidates = candidate_tables(RED, {"red": 4711})
    for busy in ((), (4711,), (4711, 10_000_100)):
        [table] = assign_tables(RED, seen(tables={"red": 4711}, busy_tables=frozenset(busy))).values()
        assert table in candidates
    assert candidate_tables(RED, {"red": 10_000_100}) == candidate_tables(RED, {}) == (10_000_100, 26_777_316)


def test_without_an_underlay_no_table_is_needed() -> None:
    assert assign_tables(without_underlay(RED), seen()) == {}
    assert candidate_tables(without_underlay(RED), {}) == ()


@given(
    st.dictionaries(st.sampled_from(("red", "green", "blue")), st.sampled_from((0, 7, 253, 254, 255, 10_000_001))),
    st.frozensets(st.sampled_from((10_000_001, 10_000_002, 7))),
)
def test_tables_are_unique_and_never_reserved_or_busy(persisted: dict[str, int], busy: frozenset[int]) -> None:
    desired = state(l3vnis=tuple(l3vni(name, vni) for vni, name in enumerate(("red", "green", "blue"), start=1)))
    tables = assign_tables(desired, seen(tables=persisted, busy_tables=busy))
    assert len(set(tables.values())) == len(tables) == 3
    assert not set(tables.values()) & (RESERVED_TABLES | busy)


def test_the_step_that_saves_the_tables_names_what_changes_and_no_more_than_a_line_takes() -> None:
    before = {"blue": 10_000_200, "red": 10_000_100}
    changed = SaveTables({"green": 10_000_300, "red": 10_000_100}, before)
    assert str(changed) == "state: VRF tables +green=10000300, -blue"
    many = SaveTables({f"t{number}": number for number in range(8)})
    assert str(many) == "state: VRF tables +t0=0, +t1=1, +t2=2, +t3=3, +t4=4 and 3 more"
