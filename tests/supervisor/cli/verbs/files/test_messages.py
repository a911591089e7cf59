"""What ``validate`` says of the mistakes that people make, word for word: the place, the fault, and what to write."""

from __future__ import annotations

import functools
import importlib
import io
import os
import pkgutil
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import actors
import config
import supervisor
from actors.frr.render import render
from config.store.last_good import LastGood, to_json
from supervisor.cli import main
from tests.supervisor.cli.examples import write_settings
from tests.supervisor.operations.test_recipes import UNDERLAY

MISTAKES = Path(__file__).parents[2] / "golden" / "mistakes.txt"


def mistakes() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each case's name and its parts: files by their path below the settings, and ``output``."""
    for case in re.split(r"^== ", MISTAKES.read_text(), flags=re.MULTILINE)[1:]:
        name, _, rest = case.partition("\n")
        parts = (part.partition("\n") for part in re.split(r"^-- ", rest, flags=re.MULTILINE)[1:])
        yield name, {head: text for head, _, text in parts}


CASES = dict(mistakes())


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings with nothing configured, and output without colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    return write_settings(tmp_path)


@pytest.mark.parametrize("mistake", CASES)
def test_a_mistake_is_named_with_its_place_and_what_to_write(
    settings: Path, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in CASES[mistake].items():
        path = settings.parent / name
        path.write_text(path.read_text() + text if path == settings else text)
        path.chmod(0o600)
    code = main(["--settings", str(settings), "validate"])
    *shown, _ = capsys.readouterr().out.replace(f"{settings.parent}/", "").splitlines(keepends=True)
    assert "".join(shown) == CASES[mistake]["output"]
    assert code == (78 if any(": error: " in line for line in shown) else 0)


def test_a_link_that_leads_to_itself_is_one_error(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        (settings.parent / "configs" / f"openpe_{one}.yaml").symlink_to(f"openpe_{other}.yaml")
    assert main(["--settings", str(settings), "validate"]) == 78
    shown = capsys.readouterr().out.replace(f"{settings.parent}/", "").splitlines()
    assert shown == [
        "configs/openpe_a.yaml: error: cannot be read: Too many levels of symbolic links",
        "configs/openpe_b.yaml: error: cannot be read: Too many levels of symbolic links",
        "not valid: 2 errors, 0 warnings",
    ]


def test_nothing_configured_is_said(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings", str(settings), "validate"]) == 0
    configs = settings.parent / "configs"
    assert capsys.readouterr().out == f"valid, but nothing is configured: {configs} has no openpe_*.yaml\n"


def test_a_directory_of_configurations_that_is_missing_is_said(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = settings.parent / "configs"
    configs.rmdir()
    assert main(["--settings", str(settings), "validate"]) == 0
    assert capsys.readouterr().out == f"valid, but nothing is configured: {configs} does not exist\n"


def test_a_directory_without_router_files_is_said(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configs = settings.parent / "configs"
    assert main(["--settings", str(settings), "validate", str(configs)]) == 0
    assert capsys.readouterr().out == f"valid, but nothing is configured: {configs} has no openpe_*.yaml\n"


def test_router_files_without_entries_are_said(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configs = settings.parent / "configs"
    (configs / "openpe_u.yaml").write_text("underlays: []\n")
    assert main(["--settings", str(settings), "validate"]) == 0
    assert capsys.readouterr().out == f"valid, but nothing is configured: {configs} has only empty openpe_*.yaml\n"


def test_standard_input_without_entries_is_said(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["--settings", str(settings), "validate", "-"]) == 0
    assert capsys.readouterr().out == "valid, but nothing is configured: standard input has no entries\n"


def test_of_a_broken_file_only_the_fault_is_shown_whatever_is_stored(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings.parent / "configs" / "openpe_u.yaml"
    good = LastGood().with_texts({file.name: CASES["a link-local neighbour by address"]["configs/openpe_x.yaml"]})
    (settings.parent / "state" / "last-good.json").write_text(to_json(good))
    file.write_text("underlays:\n\t- asn: 1\n")
    assert main(["--settings", str(settings), "validate"]) == 78
    shown = capsys.readouterr().out.replace(f"{settings.parent}/", "").splitlines()
    assert shown == [
        "configs/openpe_u.yaml:2:1: error: a tab cannot indent YAML: use spaces",
        "not valid: 1 error, 0 warnings",
    ]


#: Every verb that reads the settings, as it can be called without doing anything.
VERBS = (
    *("validate", "plan", "status", "reload", "doctor", "bundle", "teardown", "run", "init", "events", "logs"),
    *("show desired", "show topology", "show frr", "try .", "ping 192.0.2.1", "trace 192.0.2.1", "exec true"),
    *("vtysh -c show", "webhook", "join kubeconfig"),
)


@pytest.mark.parametrize("verb", VERBS)
def test_settings_that_were_named_must_exist(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings", "/nope.yaml", *verb.split()]) == 66
    assert capsys.readouterr().err == "openperouter: /nope.yaml: no such file\n"


@pytest.mark.parametrize("file", ["/nope/openpe_x.yaml", "/nope"])
@pytest.mark.parametrize(
    "verb",
    [
        "validate {}", "plan {}", "try {}", "migrate {}", "generate nodes {} out", "join {}",
        "join --server https://192.0.2.1:6443 --authority ca --token-file {}",
        "join --server https://192.0.2.1:6443 --authority {}",
    ],
)  # fmt: skip
def test_a_file_that_was_named_must_exist(
    settings: Path, verb: str, file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a.b.c"))
    assert main(["--settings", str(settings), *verb.format(file).split()]) == 66
    assert capsys.readouterr().err == f"openperouter: {file}: no such file\n"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Settings with nothing configured where others can go: pytest closes its own directories at each start."""
    monkeypatch.setenv("NO_COLOR", "1")
    with tempfile.TemporaryDirectory(prefix="openperouter-shared-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        settings = write_settings(Path(directory))
        settings.chmod(0o644)
        yield settings


@functools.cache
def read_all() -> None:
    """Import what any verb imports, and read FRR's templates: a user may be unable to read the sources."""
    for package in (config, actors, supervisor):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # python3-cryptography is there for the webhook alone.
            with suppress(ModuleNotFoundError):
                importlib.import_module(module.name)
    templates = render.environment()
    for name in templates.list_templates():
        templates.get_template(name)


def as_another_user(settings: Path, words: Sequence[str], *, output: bool = False) -> tuple[int, str]:
    """Run one command as a user without rights; return its exit code and what it wrote to standard error.

    ``output``: what it wrote to standard output, too.
    """
    read_all()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.dup2(writer, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            sys.stdout = sys.stderr if output else sys.stdout
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            code = main(["--settings", str(settings), *words])
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


BY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")


@BY_ROOT
@pytest.mark.parametrize(
    ("verb", "part"),
    [
        *((verb, "openperouter.yaml") for verb in VERBS if verb not in ("bundle", "doctor", "teardown")),
        *((verb, part) for verb in ("validate", "status", "run") for part in ("conf.d", "conf.d/50-site.yaml")),
    ],
)
def test_settings_that_a_user_may_not_read_are_named(shared: Path, verb: str, part: str) -> None:
    (shared.parent / "conf.d").mkdir()
    (shared.parent / "conf.d" / "50-site.yaml").write_text("logLevel: info\n")
    for name in ("openperouter.yaml", "conf.d", "conf.d/50-site.yaml"):
        (shared.parent / name).chmod(0o755)
    denied = shared.parent / part
    denied.chmod(0o700)
    said = f"openperouter: permission denied: {denied}; most commands need root\n"
    assert as_another_user(shared, verb.split()) == (77, said)


@BY_ROOT
@pytest.mark.parametrize("verb", ["validate", "plan", "show desired", "init", "plan {}", "try {}"])
def test_a_directory_that_a_user_may_not_read_is_named(shared: Path, verb: str) -> None:
    configs = shared.parent / "configs"
    configs.chmod(0o700)
    said = f"openperouter: permission denied: {configs}; most commands need root\n"
    assert as_another_user(shared, verb.format(shared.parent / "run").split()) == (77, said)


@BY_ROOT
@pytest.mark.parametrize(
    "verb", ["validate {}", "plan {}", "try {}", "migrate {}", "generate nodes {} /tmp/none", "join {}"]
)
def test_a_file_that_a_user_may_not_read_is_named(shared: Path, verb: str) -> None:
    file = shared.parent / "openpe_x.yaml"
    file.write_text("{}")
    file.chmod(0o600)
    said = f"openperouter: permission denied: {file}; most commands need root\n"
    assert as_another_user(shared, verb.format(file).split()) == (77, said)


@BY_ROOT
@pytest.mark.parametrize("verb", ["status", "status --watch", "reload", "events", "show topology"])
def test_a_socket_that_a_user_may_not_open_is_named(shared: Path, verb: str) -> None:
    path = shared.parent / "run" / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
        said = f"openperouter: permission denied: {path}; most commands need root\n"
        assert as_another_user(shared, verb.split()) == (77, said)


@pytest.fixture
def frr(shared: Path) -> Path:
    """The socket of a zebra that only root may use; vtysh says what FRR's says to others."""
    directory = shared.parent
    vtysh = directory / "vtysh"
    vtysh.write_text("#!/bin/sh\necho 'Exiting: failed to connect to any daemons.' >&2\nexit 1\n")
    vtysh.chmod(0o755)
    shared.write_text(f"{shared.read_text().replace('no-vtysh', 'vtysh')}frrRunDir: {directory}/frr\n")
    socket_file = directory / "frr" / "perouter" / "zebra.vty"
    socket_file.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_file))
    socket_file.chmod(0o600)
    return socket_file


@BY_ROOT
@pytest.mark.parametrize("verb", ["show route 192.0.2.1", "show route 192.0.2.1 --vrf default", "show frr"])
@pytest.mark.parametrize("closed", ["zebra.vty", "."])
def test_frrs_sockets_that_a_user_may_not_use_are_named(shared: Path, frr: Path, verb: str, closed: str) -> None:
    (frr.parent / closed).chmod(0o700)
    said = f"openperouter: permission denied: {frr}; only root and FRR's group can use it\n"
    assert as_another_user(shared, verb.split()) == (77, said)


@BY_ROOT
def test_frr_that_does_not_run_is_not_called_closed(shared: Path, frr: Path) -> None:
    frr.unlink()
    assert as_another_user(shared, ["show", "frr"])[0] == 69


@BY_ROOT
def test_a_namespace_that_a_user_may_not_enter_is_named(closed: Path) -> None:
    assert as_another_user(closed, ["show", "kernel"]) == (77, f"openperouter: {NOT_ENTERED}\n")


@BY_ROOT
def test_plan_of_which_only_root_may_see_any_part_is_denied(closed: Path, frr: Path) -> None:
    code, said = as_another_user(closed, ["plan"])
    assert code == 77
    assert f"FRR is not available: permission denied: {frr};" in said


@BY_ROOT
def test_a_directory_that_a_user_may_not_make_is_named(shared: Path) -> None:
    path = shared.parent / "new"
    said = f"openperouter: permission denied: {path}; most commands need root\n"
    assert as_another_user(shared, ["init", str(path), "--nic=lo", "--asn=1", "--unnumbered"]) == (77, said)


@BY_ROOT
@pytest.mark.parametrize("verb", ["teardown", "bundle"])
def test_some_verbs_are_only_for_root(shared: Path, verb: str) -> None:
    assert as_another_user(shared, [verb]) == (
        77,
        f"openperouter: permission denied: {verb}; most commands need root\n",
    )


@BY_ROOT
def test_the_daemon_is_only_for_root(shared: Path) -> None:
    code, said = as_another_user(shared, ["run"])
    assert code == 77
    assert f"permission denied: {shared.parent}/run/lock; only root can run the router" in said


NOT_ENTERED = "netns openperouter-not-there cannot be entered: Operation not permitted; root can"


@pytest.fixture
def closed(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings with a usable configuration that anyone may read, and a namespace that only root may enter."""
    directory = shared.parent
    (directory / "netns").mkdir()
    (directory / "netns" / "openperouter-not-there").symlink_to("/proc/self/ns/net")
    for module in ("actors.netlink.preview", "supervisor.operations.doctor.router"):
        monkeypatch.setattr(f"{module}.NAMESPACES", directory / "netns")
    (directory / "configs" / "openpe_x.yaml").write_text(UNDERLAY)
    (directory / "configs" / "openpe_x.yaml").chmod(0o644)
    return shared


@BY_ROOT
def test_plan_shows_a_user_what_it_can_and_names_what_only_root_may_see(closed: Path) -> None:
    """What is unknown does not hide what is known: problems, router ID and the parts that can be asked.

    So the exit code is that of a part that is not available, 69, and not 77 without any answer.
    """
    code, said = as_another_user(closed, ["plan"], output=True)
    assert code == 69
    assert said.splitlines() == [
        f"openperouter: FRR is not available: cannot start {closed.parent}/no-vtysh: No such file or directory",
        f"openperouter: kernel is not available: {NOT_ENTERED}",
        "router ID: 10.0.0.3 (routerIDScheme v2; v1: 10.0.0.4)",
        "FRR:",
        "  not known",
        "kernel:",
        "  not known",
    ]


@BY_ROOT
def test_doctor_shows_a_user_what_it_can_and_advises_nothing_about_the_rest(closed: Path) -> None:
    """Most checks need no right; what only root may see is named as such, and has no advice to restart FRR.

    The exit code is that of the findings, as always.
    """
    code, said = as_another_user(closed, ["doctor"], output=True)
    assert code in (1, 2)
    shown = said.splitlines()
    at = shown.index(f"warning  network: could not be examined: {NOT_ENTERED}")
    assert shown[at + 1] == "         fix: run 'openperouter doctor' as root, and remove the cause"
    assert "ok       configuration: valid: 1 resource" in shown
    assert not [line for line in shown if line.startswith("error    netns")]
