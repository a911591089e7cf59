"""What is said of the API: a state and never an error, remarked upon only when it lasts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.report.api_status import LONG_SECONDS, api_remarks, api_status
from actors.report.status_builder import compose
from config.api import ApiAccess, ApiCredentials, ApiObject, ApiReach, ApiSnapshot, NotFollowed, WatchFailure
from config.desired import RememberedApi, Secret
from config.problems import Kind
from config.status import ApiStatus, Status

from .examples import PASSWORD, desired, inputs

SERVER = "https://192.0.2.1:6443"
PROVEN = ApiCredentials(SERVER, "/var/lib/hostbridge/kubeconfig", token=Secret(PASSWORD))
RED = ApiObject(Kind.L3VNI, "ns", "red", spec={"secret": PASSWORD})
SNAPSHOT = ApiSnapshot(objects=(RED,), mirrored=(RED, RED), synced_at=1900.0, live=True)
REMEMBERED = replace(desired(), remembered=RememberedApi(7, 1400.0))
NOW = 2000.0


def access(reach: ApiReach, since: float = 1990.0, *, proven: bool = True, detail: str = "no route") -> ApiAccess:
    return ApiAccess(reach, PROVEN if proven else None, "" if reach is ApiReach.REACHABLE else detail, since)


def test_where_nobody_looks_nothing_is_said() -> None:
    assert api_status(None, None, None, NOW) == ApiStatus()
    assert compose(inputs(), NOW).api == ApiStatus()


def test_a_server_that_is_followed() -> None:
    assert api_status(access(ApiReach.REACHABLE), SNAPSHOT, None, NOW) == ApiStatus(
        "reachable", SERVER, "", 1990.0, source="server", live=True, objects=1, mirrored=2
    )


def test_a_server_that_went_away_leaves_what_it_said_with_its_age() -> None:
    status = api_status(access(ApiReach.UNREACHABLE), replace(SNAPSHOT, live=False), None, NOW)
    assert (status.reach, status.detail, status.source, status.live) == ("unreachable", "no route", "server", False)
    assert (status.objects, status.snapshot_age_seconds) == (1, 100.0)


def test_what_is_remembered_from_an_earlier_life_has_its_age() -> None:
    status = api_status(access(ApiReach.UNCONFIGURED, proven=False), None, REMEMBERED, NOW)
    assert (status.source, status.live, status.objects, status.snapshot_age_seconds) == ("memory", False, 7, 600.0)
    assert (status.server, status.reach) == ("", "unconfigured")


def test_what_the_server_says_counts_more_than_memory() -> None:
    assert api_status(access(ApiReach.REACHABLE), SNAPSHOT, REMEMBERED, NOW).objects == 1


def test_a_clock_that_was_set_back_makes_nothing_younger_than_new() -> None:
    status = api_status(None, replace(SNAPSHOT, live=False), None, 10.0)
    assert status.snapshot_age_seconds == 0.0


@pytest.mark.parametrize("reach", [ApiReach.UNREACHABLE, ApiReach.REFUSED, ApiReach.UNCONFIGURED])
@pytest.mark.parametrize("known", [SNAPSHOT, None])
def test_a_server_that_is_away_for_long_is_a_remark_and_degrades_nothing(
    reach: ApiReach, known: ApiSnapshot | None
) -> None:
    api = replace(known, live=False) if known else None
    away = replace(inputs(), access=access(reach, NOW), api=api)
    before, after = (compose(away, NOW + seconds) for seconds in (LONG_SECONDS - 1, LONG_SECONDS))
    assert before.remarks == ()
    assert after.remarks == (
        "the API server is away since 1970-01-01T00:33:20Z (no route): changes there do not reach this node",
    )
    assert (after.phase, after.ready, after.notes) == ("running", True, ())
    assert compose(away, NOW + 10 * LONG_SECONDS).remarks == after.remarks


def test_what_came_from_memory_is_remarked_upon_as_well() -> None:
    status = api_status(access(ApiReach.UNREACHABLE, 0.0, proven=False), None, REMEMBERED, NOW)
    assert list(api_remarks(status, NOW))


def test_a_node_without_a_cluster_is_not_told_about_it_for_ever() -> None:
    status = api_status(access(ApiReach.UNCONFIGURED, 0.0, proven=False), None, desired(), NOW)
    assert list(api_remarks(status, NOW)) == []


@pytest.mark.parametrize(("api", "told"), [(None, 1), (replace(SNAPSHOT, live=False), 1), (SNAPSHOT, 0)])
def test_a_server_that_answers_and_cannot_be_followed_is_remarked_upon(api: ApiSnapshot | None, told: int) -> None:
    status = api_status(access(ApiReach.REACHABLE, 0.0), api, None, NOW)
    remarks = list(api_remarks(status, NOW))
    assert len(remarks) == told
    assert all("crd_watch" in remark for remark in remarks)


def test_what_a_server_does_not_say_is_remarked_upon_and_degrades_nothing() -> None:
    silent = (
        NotFollowed("l2vnis", WatchFailure.MISSING, 1960.0),
        NotFollowed("l3vnis", WatchFailure.REFUSED, 1960.0),
        NotFollowed("secrets", WatchFailure.FAILING, 1990.0, listed=False),
    )
    status = compose(
        replace(inputs(), access=access(ApiReach.REACHABLE), api=replace(SNAPSHOT, not_followed=silent)), NOW
    )
    # Of the kind that is not installed there is nothing, so nothing can be missed.
    assert status.remarks == (
        "of the API's l3vnis (refused since 1970-01-01T00:32:40Z) nothing new is heard: "
        "what is known of them stays in force",
        "of the API's secrets (failing since 1970-01-01T00:33:10Z) nothing new is heard: "
        "what is known of them stays in force",
    )
    assert (status.phase, status.ready, status.notes) == ("running", True, ())
    assert Status.from_json(status.to_json()) == status


def test_the_age_alone_is_no_news() -> None:
    away = replace(inputs(), access=access(ApiReach.UNREACHABLE), api=replace(SNAPSHOT, live=False))
    one, other = (compose(away, NOW + seconds) for seconds in (0, 20))
    assert one.api != other.api
    assert one.essence() == other.essence()


def test_it_survives_its_json_form_and_has_no_secret() -> None:
    status = compose(replace(inputs(), access=access(ApiReach.REFUSED, 0.0), api=SNAPSHOT), NOW)
    assert Status.from_json(status.to_json()) == status
    assert PASSWORD not in status.to_json()
