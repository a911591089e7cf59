"""The API in the status: a state and never an error, with a remark only when it lasts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actors.report.api_status import LONG_SECONDS, api_remarks, api_status
from actors.report.status_builder import build_status
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


def test_before_the_first_probe_the_status_is_empty() -> None:
    assert api_status(None, None, None, NOW) == ApiStatus()
    assert build_status(inputs(), NOW).api == ApiStatus()


def test_a_server_that_is_followed() -> None:
    assert api_status(access(ApiReach.REACHABLE), SNAPSHOT, None, NOW) == ApiStatus(
        "reachable", SERVER, "", 1990.0, source="server", live=True, objects=1, mirrored=2
    )


def test_an_unreachable_server_leaves_its_last_snapshot_with_its_age() -> None:
    status = api_status(access(ApiReach.UNREACHABLE), replace(SNAPSHOT, live=False), None, NOW)
    assert (status.reach, status.detail, status.source, status.live) == ("unreachable", "no route", "server", False)
    assert (status.objects, status.snapshot_age_seconds) == (1, 100.0)


def test_a_saved_snapshot_has_its_age() -> None:
    status = api_status(access(ApiReach.UNCONFIGURED, proven=False), None, REMEMBERED, NOW)
    assert (status.source, status.live, status.objects, status.snapshot_age_seconds) == ("memory", False, 7, 600.0)
    assert (status.server, status.reach) == ("", "unconfigured")


def test_the_server_takes_precedence_over_the_saved_snapshot() -> None:
    assert api_status(access(ApiReach.REACHABLE), SNAPSHOT, REMEMBERED, NOW).objects == 1


def test_a_clock_that_was_set_back_makes_nothing_younger_than_new() -> None:
    status = api_status(None, replace(SNAPSHOT, live=False), None, 10.0)
    assert status.snapshot_age_seconds == 0.0


@pytest.mark.parametrize("reach", [ApiReach.UNREACHABLE, ApiReach.REFUSED, ApiReach.UNCONFIGURED])
@pytest.mark.parametrize("known", [SNAPSHOT, None])
def test_a_server_that_is_unreachable_for_long_is_a_remark_and_degrades_nothing(
    reach: ApiReach, known: ApiSnapshot | None
) -> None:
    api = replace(known, live=False) if known else None
    away = replace(inputs(), access=access(reach, NOW), api=api)
    before, after = (build_status(away, NOW + seconds) for seconds in (LONG_SECONDS - 1, LONG_SECONDS))
    assert before.remarks == ()
    assert after.remarks == (
        "the API server has been unreachable since 1970-01-01T00:33:20Z (no route): "
        "changes there do not reach this node",
    )
    assert (after.phase, after.ready, after.notes) == ("running", True, ())
    assert build_status(away, NOW + 10 * LONG_SECONDS).remarks == after.remarks


def test_a_saved_snapshot_without_a_server_is_a_remark_as_well() -> None:
    status = api_status(access(ApiReach.UNREACHABLE, 0.0, proven=False), None, REMEMBERED, NOW)
    assert list(api_remarks(status, NOW))


def test_a_node_without_a_cluster_has_no_remark() -> None:
    status = api_status(access(ApiReach.UNCONFIGURED, 0.0, proven=False), None, desired(), NOW)
    assert list(api_remarks(status, NOW)) == []


@pytest.mark.parametrize(("api", "count"), [(None, 1), (replace(SNAPSHOT, live=False), 1), (SNAPSHOT, 0)])
def test_a_server_that_answers_but_cannot_be_followed_is_a_remark(api: ApiSnapshot | None, count: int) -> None:
    status = api_status(access(ApiReach.REACHABLE, 0.0), api, None, NOW)
    remarks = list(api_remarks(status, NOW))
    assert len(remarks) == count
    assert all("crd_watch" in remark for remark in remarks)


def test_kinds_that_are_not_updated_are_remarks_and_degrade_nothing() -> None:
    not_updated = (
        NotFollowed("l2vnis", WatchFailure.MISSING, 1960.0),
        NotFollowed("l3vnis", WatchFailure.REFUSED, 1960.0),
        NotFollowed("secrets", WatchFailure.FAILING, 1990.0, listed=False),
    )
    status = build_status(
        replace(inputs(), access=access(ApiReach.REACHABLE), api=replace(SNAPSHOT, not_followed=not_updated)), NOW
    )
    # Of the kind that is not installed there is nothing, so nothing can be missed.
    assert status.remarks == (
        "no updates from the API for l3vnis (refused since 1970-01-01T00:32:40Z): last known objects stay in force",
        "no updates from the API for secrets (failing since 1970-01-01T00:33:10Z): last known objects stay in force",
    )
    assert (status.phase, status.ready, status.notes) == ("running", True, ())
    assert Status.from_json(status.to_json()).to_json() == status.to_json()


def test_the_age_alone_is_no_change() -> None:
    away = replace(inputs(), access=access(ApiReach.UNREACHABLE), api=replace(SNAPSHOT, live=False))
    one, other = (build_status(away, NOW + seconds) for seconds in (0, 20))
    assert one.api != other.api
    assert one.essence() == other.essence()


def test_it_survives_its_json_form_and_has_no_secret() -> None:
    status = build_status(replace(inputs(), access=access(ApiReach.REFUSED, 0.0), api=SNAPSHOT), NOW)
    assert Status.from_json(status.to_json()).to_json() == status.to_json()
    assert PASSWORD not in status.to_json()
