"""The hostbridge: what it writes, when, and what a crash, a rotation, a restart and an uninstallation leave behind."""

from __future__ import annotations

import logging
import os
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import yaml
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.lib.kube.client import KubeClient
from actors.lib.kube.credentials import load
from actors.lib.kube.errors import (
    ApiError,
    CredentialsError,
    ForbiddenError,
    NotFoundError,
    ServerError,
    UnreachableError,
)
from config.api import ApiCredentials
from config.desired import Secret
from kubeserver.pki import Authority
from supervisor.operations.cluster.hostbridge import (
    ASKING_SECONDS,
    Hostbridge,
    address,
)
from supervisor.operations.cluster.kubeconfig_file import kubeconfig_text, write_kubeconfig
from supervisor.operations.cluster.pod import NoCredentialsError, ServerAddress, read_account
from supervisor.operations.exit_codes import CommandError

SERVICE = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
SERVER = ServerAddress("https://10.96.0.1:443")
TOKEN = "eyJhbGciOiJub25lIn0.e30.c2VjcmV0"
OTHER_TOKEN = "eyJhbGciOiJub25lIn0.e30.b3RoZXI"
#: What the DaemonSet gives a pod to end.
GRACE_SECONDS = 15


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Authority(tmp_path_factory.mktemp("authority")).pair.certificate.read_text()


@pytest.fixture
def account(tmp_path: Path, ca: str) -> Path:
    """Return a directory as the kubelet fills it."""
    directory = tmp_path / "serviceaccount"
    rotate(directory, "..2026_1", TOKEN, ca)
    for name in ("token", "ca.crt"):
        (directory / name).symlink_to(f"..data/{name}")
    return directory


def rotate(directory: Path, name: str, token: str, ca: str) -> None:
    """Replace token and authority at once, as the kubelet does."""
    (directory / name).mkdir(parents=True)
    (directory / name / "token").write_text(token + "\n")
    (directory / name / "ca.crt").write_text(ca)
    link = directory / "..data_tmp"
    link.symlink_to(name)
    link.replace(directory / "..data")


@pytest.fixture
def bridge(tmp_path: Path, account: Path) -> Hostbridge:
    return Hostbridge(account, tmp_path / "host" / "kubeconfig", SERVER, "/apis/apps/v1/namespaces/a/daemonsets/b")


@pytest.mark.parametrize(
    ("choice", "environment", "expected"),
    [
        ("service", SERVICE, ServerAddress("https://10.96.0.1:443")),
        ("service", {**SERVICE, "KUBERNETES_SERVICE_HOST": "fd00::1"}, ServerAddress("https://[fd00::1]:443")),
        (
            "service",
            {**SERVICE, "KUBERNETES_SERVICE_HOST": "api.example.com"},
            ServerAddress("https://api.example.com:443"),
        ),
        ("node-local", {}, ServerAddress("https://127.0.0.1:6443", "kubernetes.default.svc")),
        ("node-local:16443", {}, ServerAddress("https://127.0.0.1:16443", "kubernetes.default.svc")),
        ("https://[2001:db8::1]:6443", {}, ServerAddress("https://[2001:db8::1]:6443")),
    ],
)
def test_where_the_host_reaches_the_server(choice: str, environment: dict[str, str], expected: ServerAddress) -> None:
    assert address(choice, environment) == expected


@pytest.mark.parametrize(
    "choice",
    ["service", "node-local:x", "http://10.0.0.1", "https://", "https://u:p@10.0.0.1", "https://a:99999", "nonsense"],
)
def test_an_address_that_cannot_be_used_is_refused_without_being_quoted(choice: str) -> None:
    with pytest.raises(CommandError, match="--api-server") as caught:
        address(choice, {})
    assert "u:p" not in str(caught.value)


async def test_the_daemon_can_use_what_is_written_and_no_other_file(bridge: Hostbridge, ca: str) -> None:
    assert bridge.step() == ""
    loaded = await load(bridge.output)
    expected = ApiCredentials(SERVER.url, str(bridge.output), ca, Secret(TOKEN))
    assert replace(loaded.credentials, expires_at=None) == expected
    assert set(loaded.files) == {bridge.output}
    assert stat.S_IMODE(bridge.output.stat().st_mode) == 0o600
    assert stat.S_IMODE(bridge.output.parent.stat().st_mode) == 0o700


async def test_the_name_in_the_certificate_and_client_certificates_are_kept(tmp_path: Path, ca: str) -> None:
    given = ApiCredentials(
        "https://127.0.0.1:6443", ca=ca, client_certificate=ca, client_key=Secret("key"), server_name="kubernetes"
    )
    write_kubeconfig(tmp_path / "kubeconfig", kubeconfig_text(given))
    document = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    assert document["clusters"][0]["cluster"]["tls-server-name"] == "kubernetes"
    assert set(document["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_an_unchanged_token_is_not_written_again_and_a_renewed_one_is(bridge: Hostbridge, ca: str) -> None:
    bridge.step()
    before = bridge.output.stat()
    assert bridge.step() == ""
    assert bridge.output.stat().st_ino == before.st_ino
    rotate(bridge.account, "..2026_2", OTHER_TOKEN, ca)
    assert bridge.step() == ""
    assert OTHER_TOKEN in bridge.output.read_text()
    assert TOKEN not in bridge.output.read_text()


def test_a_kubeconfig_that_others_can_read_is_replaced(bridge: Hostbridge) -> None:
    bridge.step()
    bridge.output.chmod(0o644)
    bridge.step()
    assert stat.S_IMODE(bridge.output.stat().st_mode) == 0o600


@pytest.mark.parametrize("call", ["os.open", "os.fchmod", "os.write", "os.fsync", "pathlib.Path.replace"])
def test_a_crash_at_any_write_leaves_the_old_set(
    bridge: Hostbridge, ca: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    bridge.step()
    old = bridge.output.read_text()
    rotate(bridge.account, "..2026_2", OTHER_TOKEN, ca)

    def crash(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(call, crash)
        with pytest.raises(KeyboardInterrupt):
            bridge.step()
    assert bridge.output.read_text() == old
    assert bridge.step() == ""
    assert [path.name for path in bridge.output.parent.iterdir()] == ["kubeconfig"]
    assert OTHER_TOKEN in bridge.output.read_text()


@pytest.mark.parametrize("lacking", ["token", "ca.crt"])
def test_a_pod_without_credentials_leaves_the_last_ones(bridge: Hostbridge, lacking: str) -> None:
    bridge.step()
    old = bridge.output.read_text()
    path = bridge.account / "..data" / lacking
    path.write_text("")
    assert "empty" in bridge.step()
    path.unlink()
    assert "No such file" in bridge.step()
    assert bridge.output.read_text() == old
    with pytest.raises(NoCredentialsError) as caught:
        read_account(bridge.account, SERVER)
    assert TOKEN not in str(caught.value)


def test_a_directory_that_cannot_be_written_is_reported(bridge: Hostbridge) -> None:
    bridge.output.parent.write_text("no directory")
    assert "cannot be written" in bridge.step()


Answer = dict[str, object] | ApiError


class Answering:
    """A client whose server answers with a DaemonSet or an error."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __aenter__(self) -> Answering:
        return self

    async def __aexit__(self, *_error: object) -> None:
        return None

    async def get(self, _path: str) -> dict[str, object]:
        if isinstance(self._answer, ApiError):
            raise self._answer
        return self._answer


def answering(*answers: Answer) -> Callable[[ApiCredentials], KubeClient]:
    """Return what opens clients: each gets the next answer, the last one stays."""
    left = list(answers)
    return lambda _credentials: Answering(left.pop(0) if left[1:] else left[0])  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("answer", "removed"),
    [
        ({"metadata": {}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
        (NotFoundError("gone"), True),
        (ForbiddenError("its role is gone"), True),
        (CredentialsError("its account is gone"), True),
        (UnreachableError("the node restarts"), False),
        (ServerError("busy"), False),
    ],
)
async def test_an_uninstallation_removes_the_credentials_and_a_restart_does_not(
    bridge: Hostbridge, autojump_clock: MockClock, ca: str, answer: Answer, *, removed: bool
) -> None:
    bridge = replace(bridge, open_client=answering(answer))
    bridge.step()
    # The kubelet may renew the token last: what was written before is still this pod's.
    rotate(bridge.account, "..2026_2", OTHER_TOKEN, ca)
    began = trio.current_time()
    await bridge.end()
    assert bridge.output.exists() is not removed
    assert trio.current_time() - began < GRACE_SECONDS


@pytest.mark.parametrize("refusal", [ForbiddenError("no roles yet"), CredentialsError("no keys yet")])
@pytest.mark.parametrize(
    ("last", "removed"), [({"metadata": {}}, False), (UnreachableError("gone"), False), (NotFoundError("gone"), True)]
)
async def test_what_a_server_refuses_that_has_just_started_says_nothing(
    bridge: Hostbridge, autojump_clock: MockClock, refusal: ApiError, last: Answer, *, removed: bool
) -> None:
    asked: list[float] = []
    answers = answering(refusal, refusal, last)

    def opened(credentials: ApiCredentials) -> KubeClient:
        asked.append(trio.current_time())
        return answers(credentials)

    bridge = replace(bridge, open_client=opened)
    bridge.step()
    await bridge.end()
    assert bridge.output.exists() is not removed
    assert len(asked) == 3
    assert asked[2] - asked[0] > 1


@pytest.mark.parametrize("answer", [NotFoundError("gone"), CredentialsError("its pod is gone")])
async def test_a_pod_leaves_what_its_successor_wrote(
    bridge: Hostbridge, autojump_clock: MockClock, ca: str, tmp_path: Path, answer: ApiError
) -> None:
    bridge = replace(bridge, open_client=answering(answer))
    bridge.step()
    rotate(tmp_path / "successor", "..2026_1", OTHER_TOKEN, ca)
    replace(bridge, account=tmp_path / "successor").step()
    await bridge.end()
    assert OTHER_TOKEN in bridge.output.read_text()


async def test_a_server_that_does_not_answer_delays_the_end_for_seconds(
    bridge: Hostbridge, autojump_clock: MockClock
) -> None:
    class Silent(Answering):
        async def get(self, _path: str) -> dict[str, object]:
            await trio.sleep_forever()
            return {}

    bridge = replace(bridge, open_client=lambda _: Silent({}))  # type: ignore[arg-type,return-value]
    bridge.step()
    began = trio.current_time()
    await bridge.end()
    assert trio.current_time() - began == pytest.approx(ASKING_SECONDS)
    assert bridge.output.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it(bridge: Hostbridge, number: signal.Signals) -> None:
    codes: list[int] = []

    async def serve() -> None:
        codes.append(await replace(bridge, open_client=answering(NotFoundError("gone"))).serve())

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await wait_all_tasks_blocked()
            os.kill(os.getpid(), number)
    assert codes == [0]
    assert not bridge.output.exists()


async def test_a_fault_is_logged_once_and_its_end_too(
    bridge: Hostbridge, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(function: Callable[[], str]) -> str:
        return function()

    # The virtual clock does not wait for threads.
    monkeypatch.setattr("trio.to_thread.run_sync", at_once)
    token = bridge.account / "..data" / "token"
    token.write_text("")
    caplog.set_level(logging.INFO, "openperouter")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bridge.follow)
        await trio.sleep(50)
        assert ["no credentials to write" in record.getMessage() for record in caplog.records] == [True]
        token.write_text(TOKEN)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    messages = [record.getMessage() for record in caplog.records[1:]]
    assert messages == ["wrote the host's credentials", "the host's credentials are written again"]
    assert TOKEN not in caplog.text
