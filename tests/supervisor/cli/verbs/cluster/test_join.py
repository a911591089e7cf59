"""``openperouter join``: what is stored, what is refused, and that no token is ever printed."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pytest

from config.api import ApiCredentials
from kubeserver.pki import Authority
from supervisor.cli.program import main
from supervisor.operations import exit_codes
from supervisor.operations.cluster import join
from supervisor.operations.cluster.join import Permissions

TOKEN = "eyJhbGciOiJub25lIn0.e30.c2VjcmV0"
WORKS = Permissions(notes=("can read l3vnis",))
WARNS = Permissions(warnings=("the token is bound to no node",))
FAILS = Permissions(faults=("https://a does not accept the credentials",))


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Authority(tmp_path_factory.mktemp("authority")).pair.certificate


class Node:
    """A node's settings; ``verdict`` is what the server says."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, ca: Path) -> None:
        self.settings = directory / "openperouter.yaml"
        self.settings.write_text(f"credentialsDir: {directory}/host\nnodeConfigFile: {directory}/node.yaml\n")
        (directory / "node.yaml").write_text("nodeIndex: 1\nnodeName: n1\n")
        self.kubeconfig = directory / "host" / "kubeconfig"
        self.verdict = WORKS
        self.ca = ca
        self.asked: list[ApiCredentials] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(join, "examine", self._examine)

    async def _examine(self, credentials: ApiCredentials, node: str, namespace: str) -> Permissions:
        assert namespace == "openperouter-system"
        self.asked.append(credentials)
        return self.verdict

    def join(self, *arguments: str | Path, token: str = TOKEN) -> int:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(token))
        return main(["join", "--settings", str(self.settings), *map(str, arguments)])

    def by_token(self, *more: str, token: str = TOKEN) -> int:
        return self.join("--server", "https://192.0.2.1:6443", "--authority", self.ca, *more, token=token)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ca: Path) -> Node:
    return Node(tmp_path, monkeypatch, ca)


def test_a_token_that_works_is_stored_for_root_alone(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.by_token(token=f"{TOKEN}\n") == exit_codes.OK
    assert stat.S_IMODE(node.kubeconfig.stat().st_mode) == 0o600
    assert TOKEN in node.kubeconfig.read_text()
    out, err = capsys.readouterr()
    assert f"stored in {node.kubeconfig}" in out
    assert "ok: can read l3vnis" in out
    assert TOKEN not in out + err


def test_quiet_leaves_warnings_which_have_an_exit_code(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.by_token("-q") == exit_codes.OK
    assert capsys.readouterr() == ("", "")
    node.verdict = WARNS
    assert node.by_token("--quiet") == exit_codes.DEGRADED
    assert capsys.readouterr() == ("", "openperouter: warning: the token is bound to no node\n")


def test_a_token_in_a_file(node: Node, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    assert node.by_token("--token-file", str(tmp_path / "token"), token="") == exit_codes.OK


def test_a_kubeconfig_is_stored_with_what_its_files_hold(node: Node, tmp_path: Path, ca: Path) -> None:
    assert node.by_token() == exit_codes.OK
    given = tmp_path / "elsewhere" / "admin.conf"
    given.parent.mkdir()
    (tmp_path / "token").write_text(TOKEN)
    text = node.kubeconfig.read_text().replace(f"token: {TOKEN}", f"tokenFile: {tmp_path}/token")
    assert "tokenFile" in text
    given.write_text(text)
    node.kubeconfig.unlink()
    assert node.join(given) == exit_codes.OK
    assert f"token: {TOKEN}" in node.kubeconfig.read_text()


def test_what_does_not_work_is_not_stored_and_the_old_stays(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    assert node.by_token() == exit_codes.OK
    old = node.kubeconfig.read_text()
    node.verdict = FAILS
    assert node.by_token(token=TOKEN.replace("e30", "e31")) == exit_codes.UNAVAILABLE
    assert node.kubeconfig.read_text() == old
    assert "not stored: https://a does not accept" in capsys.readouterr().err


@pytest.mark.parametrize("verdict", [FAILS, WARNS])
def test_with_force_or_a_warning_it_is_stored_and_reported(
    node: Node, verdict: Permissions, capsys: pytest.CaptureFixture[str]
) -> None:
    node.verdict = verdict
    assert node.by_token("--force") == exit_codes.DEGRADED
    assert node.kubeconfig.exists()
    assert "warning: " in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "error: serviceaccounts not found", "a.b", f"{TOKEN} {TOKEN}"])
def test_what_is_no_token_is_refused_without_being_quoted(
    node: Node, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node.by_token(token=token) == exit_codes.CONFIG
    assert node.asked == []
    err = capsys.readouterr().err
    assert "kubectl create token" in err
    assert not token or token not in err


def test_wrong_usage(node: Node, tmp_path: Path) -> None:
    assert node.join() == exit_codes.USAGE
    assert node.join("--server", "https://192.0.2.1") == exit_codes.USAGE
    assert node.join("--server", "http://192.0.2.1", "--authority", node.ca) == exit_codes.USAGE
    assert node.join(tmp_path / "a", "--server", "https://192.0.2.1") == exit_codes.USAGE
    assert node.join(tmp_path / "absent") == exit_codes.NO_INPUT
    assert node.join("--server", "https://192.0.2.1", "--authority", tmp_path / "absent") == exit_codes.NO_INPUT
    (tmp_path / "broken").write_text("no certificate")
    assert node.join("--server", "https://192.0.2.1", "--authority", tmp_path / "broken") == exit_codes.CONFIG
    assert not node.kubeconfig.exists()


def test_a_kubeconfig_with_a_program_stays_where_it_is(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.by_token()
    text = node.kubeconfig.read_text().replace(
        f"token: {TOKEN}", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true}"
    )
    given = node.kubeconfig.with_name("plugin.conf")
    given.write_text(text)
    assert node.join(given) == exit_codes.CONFIG
    assert "kubeconfigPrograms" in capsys.readouterr().err
