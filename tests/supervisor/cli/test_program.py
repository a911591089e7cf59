"""The program around the verbs: usage, exit codes, and how it ends when things go wrong."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.cli import main, program
from supervisor.cli.verbs.node import run as run_verb
from supervisor.operations import exit_codes
from supervisor.runtime.faults import AlreadyRunningFault, ConfigFault, DependencyFault, KernelFault
from supervisor.version import VERSION

REPOSITORY = Path(__file__).parents[3]


def test_a_command_s_own_parser_is_that_of_the_whole_command_line() -> None:
    [action] = [one for one in program.build_parser()._actions if isinstance(one, argparse._SubParsersAction)]
    assert list(action.choices) == [*program.VERBS, "version", "help"]
    for verb in program.VERBS:
        [own] = [one for one in program.build_parser(verb)._actions if isinstance(one, argparse._SubParsersAction)]
        assert own.choices[verb].format_help() == action.choices[verb].format_help()


def test_a_command_imports_no_other_command() -> None:
    code = "import sys; from supervisor.cli import main; main(['status', '--help'])"
    shown = "sys.stderr.write(' '.join(name for name in sys.modules if name.startswith('supervisor.cli.verbs.')))"
    command = [sys.executable, "-c", f"import atexit, sys; atexit.register(lambda: {shown}); {code}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("usage: openperouter status")
    verbs = {f"supervisor.cli.verbs.{module}" for module in program.VERBS.values()}
    assert verbs & {*done.stderr.split()} == {"supervisor.cli.verbs.node.status"}


@pytest.mark.parametrize("words", [["status", "--nonsense"], ["show"], ["reload", "--timeout", "soon"]])
def test_wrong_usage_has_its_own_exit_code(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(words)
    assert ending.value.code == 64
    assert "usage: openperouter" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["staus"], "there is no command staus: did you mean status?"),
        (["valdate"], "there is no command valdate: did you mean validate?"),
        (["zzz"], "there is no command zzz: see 'openperouter --help'"),
        (["show", "kernal"], "there is no subject kernal: did you mean kernel?"),
        (["show", "moon"], "there is no subject moon: see 'openperouter show --help'"),
        (["generate", "units"], "there is no kind units: see 'openperouter generate --help'"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(words)
    assert ending.value.code == 64
    assert capsys.readouterr().err == f"openperouter: {message}\n"


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        (["status", "--jsn"], "status", "--jsn: did you mean --json?"),
        (["validate", "--color=never"], "validate", "--color=never: --color goes before the command"),
        (["-q", "status"], "status", "-q: -q goes after the command"),
        (["ping", "-q", "192.0.2.1"], "ping", "-q"),
        (["plan", "--outptu=json"], "plan", "--outptu=json: did you mean --output?"),
        (["version", "now"], "version", "now"),
        (["--zzz"], "[-h]", "--zzz"),
    ],
)
def test_an_unknown_option_gets_the_commands_usage_and_a_suggestion(
    words: list[str], usage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        main(words)
    assert ending.value.code == 64
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"usage: openperouter {usage}")
    assert last == f"openperouter: unrecognized arguments: {message}"


def test_without_a_command_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == program.build_parser().format_help()


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert capsys.readouterr().out == program.build_parser().format_help()
    assert main(["help", "ping"]) == 0
    assert capsys.readouterr().out.startswith("usage: openperouter ping ")
    with pytest.raises(SystemExit) as ending:
        main(["help", "pin"])
    assert ending.value.code == 64
    assert capsys.readouterr().err == "openperouter: there is no command pin: did you mean ping?\n"


def test_version_is_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"openperouter {VERSION}\n"


def test_help_documents_every_exit_code() -> None:
    text = program.build_parser().format_help()
    own = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    signals = {exit_codes.INTERRUPTED, exit_codes.BROKEN_PIPE}
    for code in own - signals:
        assert f"\n  {code} " in text


def test_every_verb_has_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (
        "init",
        "explain",
        "schema",
        "validate",
        "plan",
        "status",
        "show",
        "ping",
        "trace",
        "exec",
        "vtysh",
        "logs",
        "events",
        "reload",
        "doctor",
        "bundle",
        "teardown",
        "run",
        "version",
    ):
        with pytest.raises(SystemExit) as ending:
            main([verb, "--help"])
        assert ending.value.code == 0
        assert len(capsys.readouterr().out) > 80


def raising(error: BaseException) -> Callable[[object], int]:
    def function(_arguments: object) -> int:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigFault("bad asn"), 78),
        (DependencyFault("no FRR"), 69),
        (KernelFault("EPERM"), 71),
        (AlreadyRunningFault("pid 7"), 75),
        (ExceptionGroup("both", [DependencyFault("no FRR"), ConfigFault("bad asn")]), 78),
        (PermissionError(13, "Permission denied", "/run/x"), 77),
        (OSError(28, "No space left on device"), 69),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_operational_error_is_one_line_and_a_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "_print_version", raising(error))
    assert main(["version"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_shows_its_traceback_and_asks_to_be_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "_print_version", raising(ZeroDivisionError("oops")))
    assert main(["version"]) == 70
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "this is a bug" in error


@pytest.mark.parametrize("words", [["version"], ["help"], ["--help"], ["--version"], ["status", "--help"], []])
def test_a_reader_that_leaves_early_gives_the_code_of_a_broken_pipe_and_no_noise(words: list[str]) -> None:
    """Buffered output fails in the last flush, which the interpreter would do by itself, with a complaint."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-m", "supervisor", *words]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "version"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"openperouter {VERSION}\n"


@pytest.mark.parametrize(("first", "loaded"), [("", "loaded\n"), ("import supervisor.cli; ", "")])
def test_a_plugin_for_pydantic_on_the_machine_is_not_loaded(first: str, loaded: str, tmp_path: Path) -> None:
    (tmp_path / "foreign.py").write_text("print('loaded')\nplugin = None\n")
    installed = tmp_path / "foreign-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[pydantic]\nforeign = foreign:plugin\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYDANTIC_")}
    command = [sys.executable, "-c", f"{first}from config.node import NodeConfig; NodeConfig.model_validate({{}})"]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == loaded, done.stderr


def test_run_starts_the_daemon_with_the_settings_and_the_level(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Path, str | None]] = []

    def run_daemon(file: Path, level: str | None) -> int:
        started.append((file, level))
        return 78

    monkeypatch.setattr("supervisor.main.run_daemon", run_daemon)
    assert main(["run", "--settings", str(settings), "--log-level", "debug"]) == 78
    assert started == [(settings, "debug")]
    assert run_verb.__doc__
