"""The result of a probe for each answer of a server, and each failure to get one."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from actors.api_wait.probe import KNOWN_PATH, PROBE_SECONDS, READY_PATH, ProbeResult, probe
from actors.lib.kube import client
from actors.lib.kube.client import Json, KubeClient
from actors.lib.kube.errors import ApiError, UnreachableError, error_for
from config.api import ApiCredentials, ApiReach
from config.desired import Secret

CREDENTIALS = ApiCredentials("https://one", "/k", token=Secret("hunter2"), client_key=Secret("private"))


class Scripted(KubeClient):
    """A client to which each path's answer is an error, or good."""

    def __init__(self, credentials: ApiCredentials, errors: dict[str, ApiError], seconds: float = 0.0) -> None:
        super().__init__(credentials)
        self._errors = errors
        self._seconds = seconds

    async def __aenter__(self) -> KubeClient:
        return self

    async def text(self, path: str) -> str:
        await trio.sleep(self._seconds)
        if path in self._errors:
            raise self._errors[path]
        return "ok"

    async def get(self, path: str, params: object = None) -> Json:
        return {"kind": await self.text(path)}


async def asked(errors: dict[str, ApiError]) -> ProbeResult:
    return await probe(CREDENTIALS, lambda credentials: Scripted(credentials, errors))


def error(code: int, text: str = "", retry_after: float | None = None) -> ApiError:
    return error_for(code, "", text, retry_after)


ANONYMOUS = 'forbidden: User "system:anonymous" cannot get path "/apis"'

CASES: dict[str, tuple[dict[str, ApiError], ApiReach, str]] = {
    "all is well": ({}, ApiReach.REACHABLE, ""),
    "token not known": ({READY_PATH: error(401, "Unauthorized")}, ApiReach.REFUSED, "Unauthorized"),
    "not known but ready": ({KNOWN_PATH: error(401, "Unauthorized")}, ApiReach.REFUSED, "Unauthorized"),
    "taken for anonymous": ({KNOWN_PATH: error(403, ANONYMOUS)}, ApiReach.REFUSED, "requests are anonymous"),
    "readiness hidden": ({READY_PATH: error(403, "forbidden")}, ApiReach.REACHABLE, ""),
    "discovery hidden": ({KNOWN_PATH: error(403, 'forbidden: User "a"')}, ApiReach.REACHABLE, ""),
    "everything hidden, anonymous": (
        {READY_PATH: error(403, ANONYMOUS), KNOWN_PATH: error(403, ANONYMOUS)},
        ApiReach.REFUSED,
        "requests are anonymous",
    ),
    "not ready": (
        {READY_PATH: error(500, "[+]ping ok [-]etcd failed: withheld [-]poststarthook/x failed")},
        ApiReach.UNREACHABLE,
        "it is not ready (etcd, poststarthook/x)",
    ),
    "not ready, no reason": ({READY_PATH: error(500, "?")}, ApiReach.UNREACHABLE, "it is not ready"),
    "no API server": ({READY_PATH: error(404, "GET /readyz: not found")}, ApiReach.UNREACHABLE, "not found"),
    "no connection": (
        {READY_PATH: UnreachableError("https://one: Connection\nrefused")},
        ApiReach.UNREACHABLE,
        "Connection refused",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_each_answer_has_its_reach(case: str) -> None:
    errors, reach, reason = CASES[case]
    answer = await asked(errors)
    assert answer.reach is reach
    assert reason in answer.reason
    assert "\n" not in answer.reason


async def test_the_server_is_not_named_twice() -> None:
    answer = await asked({READY_PATH: UnreachableError("https://one: Connection refused")})
    assert answer.reason == "Connection refused"


async def test_retry_after_is_kept() -> None:
    assert (await asked({READY_PATH: error(429, "slow", 30)})).retry_after == 30


async def test_secrets_that_a_server_echoes_are_masked() -> None:
    answer = await asked({READY_PATH: error(418, "Authorization: Bearer hunter2, key private")})
    assert answer.reason == "Authorization: Bearer ********, key ********"


async def test_a_silent_server_times_out(autojump_clock: MockClock) -> None:
    answer = await probe(CREDENTIALS, lambda credentials: Scripted(credentials, {}, seconds=3600))
    assert answer.reach is ApiReach.UNREACHABLE
    assert trio.current_time() == pytest.approx(PROBE_SECONDS)


async def test_a_server_that_accepts_and_stays_silent_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real client, whose libraries say only that something was cancelled."""
    monkeypatch.setattr(client, "CONNECT_SECONDS", 0.1)

    async def mute(_stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, mute, [listener])
        port = listener.socket.getsockname()[1]
        answer = await probe(ApiCredentials(f"https://127.0.0.1:{port}", "/k"), KubeClient)
        nursery.cancel_scope.cancel()
    assert answer == ProbeResult(ApiReach.UNREACHABLE, "no answer in time (ConnectTimeout)")


async def test_certificates_that_cannot_be_used_are_named() -> None:
    """The real client, which looks at them before it connects."""
    broken = ApiCredentials("https://one", "/k", ca="-----BEGIN CERTIFICATE-----\nnonsense")
    answer = await probe(broken, KubeClient)
    assert answer.reach is ApiReach.UNREACHABLE
    assert "certificates are not usable" in answer.reason
