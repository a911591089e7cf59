"""What one node does about a claim, given what it would say itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from actors.lib.kube.cluster_size import Crowd
from actors.status_writer.condition_codec import Claim, conditions, failing
from actors.status_writer.feedback_suppression import (
    CHECK_SECONDS,
    CLEAR_SECONDS,
    REPHRASE_SECONDS,
    Intent,
    Subject,
    Suppressor,
    intent,
)
from actors.status_writer.object_status import Verdict
from config.api import ApiObject

from .examples import cr

ME = "node-a"
FINE = Verdict(1, good=True)
UNKNOWN = Verdict(1, None)
BROKEN = Verdict(1, False, "ValidationFailed", "vni 100 is taken")
MINE = failing(ME, "ValidationFailed", "vni 100 is taken")
THEIRS = failing("node-b", "DependencyFailed", "no underlay")
OK = Claim(False, "node-b")


@pytest.mark.parametrize(
    ("verdict", "heard", "wanted"),
    [
        (UNKNOWN, None, Intent.NOTHING),
        (UNKNOWN, MINE, Intent.NOTHING),
        (FINE, None, Intent.SAY_GOOD),
        (FINE, OK, Intent.NOTHING),
        (FINE, MINE, Intent.CLEAR),
        (FINE, THEIRS, Intent.CHECK),
        (BROKEN, None, Intent.SAY_FAILING),
        (BROKEN, OK, Intent.SAY_FAILING),
        (BROKEN, MINE, Intent.NOTHING),
        (BROKEN, THEIRS, Intent.NOTHING),
        (replace(BROKEN, message="vni 100 is taken by green"), MINE, Intent.REPHRASE),
        (replace(FINE, generation=0), None, Intent.NOTHING),
        (replace(BROKEN, generation=0), OK, Intent.NOTHING),
    ],
)
def test_what_a_node_wants(verdict: Verdict, heard: Claim | None, wanted: Intent) -> None:
    assert intent(verdict, 1, heard, ME) is wanted


def claimed(claim: Claim | None, version: str = "11", one: ApiObject | None = None) -> ApiObject:
    one = replace(one or cr(), resource_version=version)
    if claim is None:
        return one
    made = conditions(claim, one.generation, 1.8e9, ())
    return replace(one, conditions=tuple(each.model_dump(by_alias=True) for each in made))


class Talk:
    """One node and one object; ``chance`` is what its dice say."""

    def __init__(self, chance: float = 0.5, nodes: int = 100) -> None:
        self.chance = chance
        self.crowd = Crowd(nodes)
        self.suppressor = Suppressor(ME, self.crowd, lambda: self.chance)

    def hears(self, claim: Claim | None, verdict: Verdict, now: float, version: str = "11", own: bool = False) -> float:
        """Show the object, and return how long the node will wait."""
        self.suppressor.look([Subject(claimed(claim, version), verdict, own)], now)
        return self.suppressor.due() - now


def test_nothing_is_due_before_its_time_and_one_thing_after() -> None:
    talk = Talk()
    wait = talk.hears(None, BROKEN, 100.0)
    assert talk.suppressor.next(100.0 + wait - 0.01) is None
    task = talk.suppressor.next(100.0 + wait)
    assert task is not None
    assert (task.intent, task.claim) == (Intent.SAY_FAILING, MINE)


def test_bad_news_goes_before_good_news() -> None:
    latest, earliest = Talk(0.999999), Talk(0.0)
    assert latest.hears(None, BROKEN, 0.0) <= earliest.hears(None, FINE, 0.0)


def test_a_wait_goes_on_while_it_is_for_the_same() -> None:
    talk = Talk()
    due = talk.hears(None, BROKEN, 0.0)
    talk.chance = 0.9
    assert talk.hears(OK, BROKEN, 1.0, "12") == pytest.approx(due - 1.0)


def test_who_hears_it_said_is_silent() -> None:
    talk = Talk()
    talk.hears(None, BROKEN, 0.0)
    assert talk.hears(THEIRS, BROKEN, 1.0, "12") == math.inf
    talk.hears(None, FINE, 2.0, "13")
    assert talk.hears(OK, FINE, 3.0, "14") == math.inf


def test_an_own_claim_is_taken_back_after_a_while() -> None:
    talk = Talk(0.0)
    assert talk.hears(MINE, FINE, 0.0) == CLEAR_SECONDS
    # Failing again meanwhile: nothing was said, and nothing has to be.
    assert talk.hears(MINE, BROKEN, 5.0, "12") == math.inf
    assert talk.hears(MINE, FINE, 6.0, "13") == CLEAR_SECONDS


def test_another_text_for_the_same_failure_waits_long() -> None:
    talk = Talk(0.0)
    assert talk.hears(MINE, replace(BROKEN, message="other"), 0.0) == REPHRASE_SECONDS


def test_another_nodes_claim_is_checked_late_and_confirmations_put_it_off() -> None:
    talk = Talk(0.0)
    assert talk.hears(THEIRS, FINE, 0.0) == CHECK_SECONDS
    assert talk.hears(replace(THEIRS, confirmed="2027-01-15T08:00:00Z"), FINE, 10.0, "12") == 2 * CHECK_SECONDS
    assert talk.hears(replace(THEIRS, confirmed="2027-01-15T09:00:00Z"), FINE, 20.0, "13") == 4 * CHECK_SECONDS


def test_what_the_server_took_counts_until_it_shows() -> None:
    talk = Talk()
    wait = talk.hears(None, BROKEN, 0.0)
    task = talk.suppressor.next(wait)
    assert task is not None
    talk.suppressor.done(task, task.claim, wait)
    assert talk.suppressor.due() == math.inf
    # The watch still shows the version from before.
    assert talk.hears(None, BROKEN, wait) == math.inf
    assert talk.hears(MINE, BROKEN, wait, "12") == math.inf
    # Somebody undid it.
    assert talk.hears(None, BROKEN, wait, "13") < 100


def test_an_attempt_that_came_too_late_is_put_off() -> None:
    talk = Talk(0.0)
    wait = talk.hears(None, BROKEN, 0.0)
    task = talk.suppressor.next(wait)
    assert task is not None
    talk.suppressor.again(task, wait)
    assert talk.suppressor.due() == wait + 1.0
    talk.suppressor.again(task, wait, 600.0)
    assert talk.suppressor.due() == wait + 600.0


def test_restless_objects_are_spoken_of_more_slowly_and_forgiven_after_hours() -> None:
    talk = Talk(0.0)
    waits = [talk.hears(MINE if step % 2 else OK, FINE, 20.0 * step, str(step)) for step in range(30)]
    clears = [wait for wait in waits if wait < math.inf]
    assert clears[0] == CLEAR_SECONDS
    assert clears == sorted(clears)
    assert clears[-1] == 64 * CLEAR_SECONDS
    talk.hears(OK, FINE, 1000.0, "a")
    assert talk.hears(MINE, FINE, 20000.0, "b") == CLEAR_SECONDS


def test_an_object_that_is_gone_is_forgotten() -> None:
    talk = Talk()
    wait = talk.hears(None, BROKEN, 0.0)
    task = talk.suppressor.next(wait)
    talk.suppressor.look([], wait)
    assert talk.suppressor.due() == math.inf
    assert task is not None
    talk.suppressor.again(task, wait)
    talk.suppressor.done(task, task.claim, wait)
    assert talk.suppressor.next(1e9) is None


def test_what_no_other_node_knows_is_said_soon_in_a_small_cluster() -> None:
    assert Talk(0.5, nodes=30).hears(None, BROKEN, 0.0) > 2
    assert Talk(0.5, nodes=30).hears(None, BROKEN, 0.0, own=True) < 2


@pytest.mark.parametrize(("said", "verdict"), [(None, BROKEN), (None, FINE), (MINE, FINE)])
def test_in_a_large_cluster_it_waits_for_its_turn(said: Claim | None, verdict: Verdict) -> None:
    """Five thousand nodes with one such object each, at 20 writes a second."""
    first, last = (Talk(chance, nodes=5000).hears(said, verdict, 0.0, own=True) for chance in (0.0, 0.999999))
    assert first < 30
    assert 249 < last < 275


def test_who_has_more_such_objects_takes_longer() -> None:
    talk = Talk(0.999999, nodes=5000)
    talk.suppressor.look([Subject(claimed(None, one=cr(name)), BROKEN, True) for name in "abcde"], 0.0)
    assert 1249 < talk.suppressor.due() < 1275


def test_who_learns_that_the_cluster_is_small_waits_less() -> None:
    talk = Talk(0.5, nodes=5000)
    long = talk.hears(None, FINE, 0.0)
    talk.crowd.learn(3)
    assert talk.hears(None, FINE, 1.0) < long / 3
    # About as many: the wait goes on.
    talk.chance = 0.9
    before = talk.suppressor.due()
    talk.crowd.learn(4)
    talk.hears(None, FINE, 2.0)
    assert talk.suppressor.due() == before
