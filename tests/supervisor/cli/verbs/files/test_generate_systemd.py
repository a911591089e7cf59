"""``openperouter generate systemd``: the units are those that podman makes of the quadlets, and a node has one kind.

The units of podman 5.4 are in tests/supervisor/operations/router/podman-5.4: what "/usr/libexec/podman/quadlet -dryrun"
prints of the quadlets with this image, without comments, its own sections and SourcePath=.
"""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from supervisor.cli.program import main
from supervisor.operations import exit_codes
from supervisor.operations.paths import POD_UNITS
from supervisor.operations.router.podman_units import (
    DAEMON_DROP_IN,
    NATIVE_DROP_IN,
    POD,
    POD_OF,
    SETTINGS,
    Parameters,
    paths,
    texts,
)

PODMANS = Path(__file__).resolve().parents[3] / "operations/router/podman-5.4"
IMAGE = "localhost/router:1"
SYSTEM = "etc/systemd/system"


def directives(text: str) -> list[tuple[str, list[str]]]:
    """Return a unit's directives with their sections, sorted; so are the words, whose order podman leaves to chance."""
    found, section = [], ""
    for line in text.replace("\\\n", "").splitlines():
        if line.startswith("["):
            section = line
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.append((f"{section}{key}", sorted(value.split())))
    return sorted(found)


def generate(kind: str, root: Path, *options: str) -> int:
    return main(["generate", kind, "--output", str(root), *options])


@pytest.mark.parametrize("unit", POD_UNITS)
def test_a_unit_is_what_podman_makes_of_the_quadlet(unit: str) -> None:
    made = texts(Parameters(image=IMAGE), "systemd")[f"{SYSTEM}/{unit}"]
    assert directives(made) == directives((PODMANS / unit).read_text())


def test_the_image_follows_the_options_and_the_command_follows_it() -> None:
    units = texts(Parameters(image=IMAGE), "systemd")
    ends = {
        unit: re.findall(r"^ExecStart=(.*)$", units[f"{SYSTEM}/{unit}"].replace("\\\n", ""), re.MULTILINE)[0].split()[
            -3:
        ]
        for unit in POD_UNITS[1:]
    }
    assert ends == {
        POD_UNITS[1]: ["--pidfile=/run/openperouter-router/frr.pid", "--log-opt=tag=frr", IMAGE],
        POD_UNITS[2]: [IMAGE, "/usr/bin/openperouter", "reloader"],
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    generate("systemd", tmp_path)
    units = [str(tmp_path / SYSTEM / unit) for unit in POD_UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # Programs and units that this machine does not have are none of the files' faults.
    faults = [line for line in done.stderr.splitlines() if re.search(r"/openperouter-[\w-]+\.service:\d+: ", line)]
    assert faults == []


def test_quiet_writes_units_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("systemd", tmp_path, "-q") == 0
    assert generate("systemd", tmp_path, "-q", "--check") == 0
    (tmp_path / SETTINGS).write_text("other\n")
    assert generate("systemd", tmp_path, "-q", "--check") == 2
    assert capsys.readouterr() == ("", "")


def test_all_files_are_written_compared_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {f"{SYSTEM}/{unit}" for unit in POD_UNITS} | {NATIVE_DROP_IN, DAEMON_DROP_IN, SETTINGS}
    assert set(paths("systemd")) == wanted
    assert generate("systemd", tmp_path, "--check") == exit_codes.PENDING
    assert generate("systemd", tmp_path) == exit_codes.OK
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == wanted
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in wanted - {SETTINGS}} == {0o644}
    assert f"ConditionPathExists=!/{POD_OF['systemd']}\n" in (tmp_path / NATIVE_DROP_IN).read_text()
    assert generate("systemd", tmp_path, "--check") == exit_codes.OK
    assert generate("systemd", tmp_path, "--check", "--image", IMAGE) == exit_codes.PENDING
    assert generate("systemd", tmp_path, "--remove") == exit_codes.OK
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("first", "second"), [("quadlet", "systemd"), ("systemd", "quadlet")])
@pytest.mark.parametrize("option", ["--check", "--image=router:1", "--remove"])
def test_the_other_kind_is_refused_until_the_first_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: str, second: str, option: str
) -> None:
    generate(first, tmp_path)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert generate(second, tmp_path, option) == exit_codes.USAGE
    assert ("nothing is removed" if option == "--remove" else f"generate {first} --remove") in capsys.readouterr().err
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert generate(first, tmp_path, "--remove") == exit_codes.OK
    assert generate(second, tmp_path) == exit_codes.OK
    assert (tmp_path / POD).exists() == (second == "quadlet")
