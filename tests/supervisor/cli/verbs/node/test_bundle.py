"""``openperouter bundle`` as a whole: programs that babble secrets, files full of them, and an archive without any."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from pathlib import Path

import pytest

from supervisor.cli import main
from tests.supervisor.cli.examples import READY, SECRETS, answering, status_answer

#: Stands for all that is in files which no archive may have, secret or not.
NEVER = "xylophone"
FILED, RUNNING, JOURNAL, STATE, UNKNOWN, TRIED = (
    "filed-secret-1",
    "running-secret-2",
    "hunter2hunter2",
    "topsecretword",
    "q7Xw9",
    "tried-secret-3",
)
BABBLE = f"""\
#!/bin/sh
case "$*" in
    *"show running-config"*) echo 'router bgp 64514'; echo ' neighbor 192.0.2.9 password {RUNNING}' ;;
    *"show daemons"*) echo zebra bgpd ;;
    *) echo "{RUNNING} {FILED} $0" ;;
esac
"""
JOURNALCTL = f"""\
#!/bin/sh
echo 'host openperouter[1]: a peer said {JOURNAL} and {RUNNING} and {FILED}; on trial {TRIED}'
echo 'host bgpd[2]: configured: neighbor 192.0.2.8 password {UNKNOWN}'
"""


@pytest.fixture
def babbling(settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node where every program and every file gives secrets away."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("vtysh", BABBLE), ("journalctl", JOURNALCTL), ("ip", BABBLE), ("systemctl", BABBLE)):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    frr = tmp_path / "frr" / "perouter"
    frr.mkdir(parents=True)
    (frr / "frr.conf").write_text(f"router bgp 64514\n neighbor 192.0.2.9 password {RUNNING}\n")
    text = settings.read_text().replace(f"vtysh: {tmp_path}/no-vtysh", f"vtysh: {programs}/vtysh")
    settings.write_text(f"{text}frrEtcDir: {tmp_path}/frr\nfrrRunDir: {tmp_path}/run-frr\n")
    (tmp_path / "configs" / "secrets").mkdir(mode=0o700)
    (tmp_path / "configs" / "secrets" / "fabric").write_text(f"{FILED}\n")
    (tmp_path / "configs" / "openpe_broken.yaml").write_text(f"underlays: [\n  password: {FILED}\n")
    state = tmp_path / "state"
    state.mkdir(exist_ok=True)
    (state / "trial.json").write_text(json.dumps({"texts": {"openpe_x.yaml": f"password: {TRIED}\n"}}))
    for name in ("api-snapshot.json", "mirror-key"):
        (state / name).write_text(NEVER)
    (tmp_path / "run" / "state.json").write_text(json.dumps({"summary": f"bgpd: {STATE}"}))
    return settings


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            assert stream is not None
            found[member.name.partition("/")[2]] = stream.read().decode()
    return found


def bundle(settings: Path, *words: str) -> int:
    return main(["--settings", str(settings), "bundle", *words])


def test_no_planted_secret_is_anywhere_in_it(
    babbling: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.tar.gz"
    with answering(tmp_path / "run", [status_answer(READY)]):
        assert bundle(babbling, "--output", str(path)) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    texts = unpacked(path)
    shown = capsys.readouterr()
    for secret in (*SECRETS, FILED, RUNNING, JOURNAL, STATE, UNKNOWN, TRIED, NEVER):
        assert [name for name, text in texts.items() if secret in text] == []
        assert secret not in shown.out + shown.err
    assert "a peer said ********" in texts["journal.txt"]
    assert "neighbor 192.0.2.8 password ********" in texts["journal.txt"]
    assert "neighbor 192.0.2.9 password ********" in texts["frr/running.conf"]


def test_it_has_what_a_developer_needs(babbling: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    bundle(babbling, "--output", str(path))
    texts = unpacked(path)
    assert set(texts) >= {
        "manifest.json",
        "doctor.txt",
        "doctor.json",
        "versions.txt",
        "status.json",
        "state.json",
        "configuration.yaml",
        "problems.txt",
        "desired.yaml",
        "journal.txt",
        "units/properties.txt",
        "frr/running.conf",
        "frr/intended.conf",
        "frr/frr.conf",
        "frr/show-evpn-vni-detail.txt",
        "host/ip-link.txt",
        "router/ip-link.txt",
        "router/sysctl.txt",
        "state/nic-journal.json",
        "os-release",
    }
    assert "asn: 64514" in texts["configuration.yaml"]
    assert "openpe_broken.yaml:" in texts["problems.txt"]
    assert "toswitch1" in texts["desired.yaml"]


def test_unavailable_items_are_counted_and_their_reason_is_in_the_manifest(
    babbling: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.tar.gz"
    assert bundle(babbling, "--output", str(path)) == 0
    entries = {entry["name"]: entry["error"] for entry in json.loads(unpacked(path)["manifest.json"])["pieces"]}
    assert "not running" in entries["status.json"]
    assert entries["journal.txt"] == ""
    failed = sum(bool(error) for error in entries.values())
    assert f"{failed} of {len(entries) + 1} items unavailable (see manifest.json)" in capsys.readouterr().err


def test_an_existing_file_is_not_overwritten(babbling: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.write_text("precious")
    assert bundle(babbling, "--output", str(path)) == 64
    assert path.read_text() == "precious"


def test_the_default_name_is_in_this_directory_and_has_the_nodes_name(
    babbling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert bundle(babbling) == 0
    [path] = (tmp_path / "here").iterdir()
    assert path.name.startswith("openperouter-bundle-")
    assert path.name.endswith(".tar.gz")


def test_only_root_may_run_it(babbling: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bundle(babbling) == 77
