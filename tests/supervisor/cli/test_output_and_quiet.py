"""``--output`` and ``--quiet`` of all verbs that have them: spelled alike, and what each prints."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

import actors.frr.preview
import actors.netlink.preview
from actors.frr.preview import Preview
from actors.netlink.planning.steps import Plan
from actors.static_config.trial import Journal
from config.desired import DesiredState
from config.settings import Settings
from supervisor.cli import main
from supervisor.cli.program import build_parser
from supervisor.operations import doctor
from supervisor.operations.doctor import Finding, judge
from tests.supervisor.cli.examples import DEGRADED, READY, answering, status_answer
from tests.supervisor.operations.doctor.healthy_machine import HEALTHY, but

GREEN = "l3vnis: [{name: green, vrf: green, vni: 300}]\n"
DONE: dict[str, Any] = {"event": "done", "ok": True, "reason": "", "problems": [], "summary": "ready: all of it"}
LEFT_OUT: dict[str, Any] = {**DONE, "ok": False, "reason": "1 problem remains", "problems": ["a.yaml:3:1: error: bad"]}
ALIVE: list[dict[str, Any]] = [{"status": {"schema_version": 1}}]
PROGRESS = {"event": "progress", "summary": "reloading: FRR"}
EVENTS = [
    {"events": {"instance": "a", "first": 1, "last": 2}},
    {"number": 1, "at": 0, "topic": "VNI", "subject": "L3VNI red", "message": "on: 'é'", "level": "info"},
    {"number": 2, "at": 0, "topic": "VNI", "subject": "L3VNI red", "message": "yes", "level": "warning"},
]


def verbs() -> dict[str, argparse.ArgumentParser]:
    [action] = [one for one in build_parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(action.choices)


def having(option: str) -> set[str]:
    return {name for name, verb in verbs().items() if option in verb._option_string_actions}


class Node:
    """A node with scripted answers of its daemon, FRR, kernel and doctor; ``{green}`` in a command is a new file."""

    def __init__(self, settings: Path, capsys: pytest.CaptureFixture[str], stack: ExitStack) -> None:
        self.settings = settings
        self.run_dir = settings.parent / "run"
        self.state_dir = settings.parent / "state"
        self.green = settings.parent / "new" / "openpe_green.yaml"
        self.green.parent.mkdir()
        self.green.write_text(GREEN)
        self._capsys = capsys
        self._stack = stack

    def answers(self, *scripts: list[dict[str, Any]]) -> None:
        """Have the daemon answer one client, or two."""
        (self.run_dir / "control.sock").unlink(missing_ok=True)
        first, second = (*scripts, None)[:2]
        assert first is not None
        self._stack.enter_context(answering(self.run_dir, first, events=second))

    def run(self, command: str) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error of a command."""
        self._capsys.readouterr()
        code = main(["--settings", str(self.settings), *command.format(green=self.green).split()])
        shown = self._capsys.readouterr()
        return code, shown.out, shown.err


@pytest.fixture
def node(settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    async def preview_frr(desired: DesiredState, _settings: Settings) -> Preview:
        return Preview(("+ vrf green",) if len(desired.l3vnis) > 1 else (), ())

    async def preview_kernel(_desired: DesiredState, _settings: Settings) -> tuple[Plan, tuple[()]]:
        return Plan(), ()

    async def examine(_settings: Settings, _settings_file: Path) -> list[Finding]:
        return judge(but("frr", vtysh=False))

    monkeypatch.setattr(actors.frr.preview, "preview", preview_frr)
    monkeypatch.setattr(actors.netlink.preview, "preview_interruptions", preview_kernel)
    monkeypatch.setattr(doctor, "examine", examine)
    with ExitStack() as stack:
        yield Node(settings, capsys, stack)


def test_every_verb_with_a_document_has_the_same_options() -> None:
    names = having("--json")
    assert names == {"validate", "plan", "try", "status", "show", "doctor", "events"}
    for name in names:
        output = verbs()[name]._option_string_actions["--output"]
        assert output.default == "text"
        assert list(output.choices or ())[:3] == ["text", "json", "yaml"]
    # Elsewhere the option names a file.
    others = {name: verbs()[name]._option_string_actions["--output"].metavar for name in having("--output") - names}
    assert others == {"bundle": "FILE", "generate": "DIR", "hostbridge": "FILE"}


def test_quiet_is_an_option_of_verbs_that_do_or_check_something() -> None:
    checks = {"validate", "plan", "status", "doctor", "show"}
    works = {"init", "migrate", "generate", "reload", "try", "bundle", "teardown", "join"}
    assert having("--quiet") == having("-q") == checks | works


@pytest.mark.parametrize(
    ("command", "code", "answers"),
    [
        ("validate", 0, None),
        ("validate {green}.missing-key", 78, None),
        ("plan", 0, None),
        ("plan {green}", 2, None),
        ("status", 1, [status_answer(DEGRADED)]),
        ("doctor", 2, None),
        ("show desired", 0, None),
        ("show config", 0, None),
        ("show topology", 0, [status_answer(READY)]),
        ("show vni 100", 0, [status_answer(READY)]),
        ("show session 192.168.11.2", 0, [status_answer(READY)]),
        ("try --status", 1, None),
    ],
)
def test_yaml_is_the_document_of_json(
    node: Node, command: str, code: int, answers: list[dict[str, Any]] | None
) -> None:
    Path(f"{node.green}.missing-key").write_text("l3vnis:\n  - vfr: 'é'\n")

    def shown(options: str) -> str:
        if answers:
            node.answers(answers)
        got, out, _ = node.run(f"{command} {options}")
        assert got == code
        return out

    text, document = shown("--output json"), json.loads(shown("--json"))
    assert json.loads(text) == document
    assert yaml.safe_load(shown("--output yaml")) == document
    assert document or command == "validate"
    assert shown("") == shown("--output text") != text


@pytest.mark.parametrize(
    ("command", "answers", "code"),
    [("events", EVENTS, 0), ("status --watch", [status_answer(READY), status_answer(DEGRADED)], 3)],
)
def test_a_stream_is_a_document_for_each_change(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    answers: list[dict[str, Any]],
    code: int,
) -> None:
    monkeypatch.setattr("supervisor.operations.control_client.RESTART_SECONDS", 0.0)
    node.answers(answers)
    got, lines, _ = node.run(f"{command} --output json")
    assert got == code
    documents = [json.loads(line) for line in lines.splitlines()]
    assert len(documents) == 2
    node.answers(answers)
    got, text, _ = node.run(f"{command} --output yaml")
    assert got == code
    assert text.startswith("---\n")
    assert list(yaml.safe_load_all(text)) == documents


def test_a_trial_is_one_document_for_a_program(node: Node) -> None:
    node.answers(ALIVE, [PROGRESS, LEFT_OUT])
    code, out, error = node.run("try --detach --json {green}")
    document = json.loads(out)
    assert (code, error) == (1, "")
    assert document["outcome"] == {
        "ok": False,
        "message": LEFT_OUT["reason"],
        "problems": LEFT_OUT["problems"],
    }
    assert document["problems"] == []
    assert document["trial"]["kept"] is False
    assert document["trial"]["writes"] == [str(node.settings.parent / "configs" / "openpe_green.yaml")]
    node.answers([PROGRESS, DONE])
    code, out, error = node.run("try --confirm --output yaml")
    document = yaml.safe_load(out)
    assert (code, error, document["trial"]) == (0, "", None)
    assert document["last"]["kept"] is True
    assert document["outcome"] == {"ok": True, "message": "ready: all of it", "problems": []}


def test_a_trial_that_is_refused_is_a_document_with_the_problems(node: Node) -> None:
    node.green.write_text(GREEN.replace("300", "many"))
    code, out, error = node.run("try --detach --output json {green}")
    document = json.loads(out)
    assert (code, error) == (78, "")
    assert document["problems"][0]["path"] == str(node.green)
    assert document["trial"] is document["outcome"] is None
    assert Journal(node.state_dir).load() is None


def test_a_trial_that_is_reverted_is_one_too(node: Node) -> None:
    node.answers(ALIVE, [DONE])
    assert node.run("try --detach -q {green}") == (0, "", "")
    node.answers([{"status": {"schema_version": 1, "ready": True, "summary": "ready: as before"}}])
    code, out, _ = node.run("try --revert --json")
    assert code == 0
    document = json.loads(out)
    assert document["last"]["kept"] is False
    assert document["outcome"] == {"ok": True, "message": "ready: as before", "problems": []}


@pytest.mark.parametrize("words", ["{green}", "--edit --detach", "--edit"])
def test_what_asks_prints_no_document(node: Node, words: str) -> None:
    what = "--output yaml needs one of --detach, --confirm, --revert and --status"
    assert node.run(f"try --output yaml {words}") == (64, "", f"openperouter: {what}\n")


MISSING = "error    frr-programs: /usr/bin/vtysh does not exist\n         fix: apt install frr\n"


@pytest.mark.parametrize(
    ("command", "scripts", "ending"),
    [
        ("validate -q", (), (0, "", "")),
        ("validate --quiet {green}", (), (0, "", "")),
        ("plan -q", (), (0, "", "")),
        ("plan -q {green}", (), (2, "", "")),
        ("status -q", ([status_answer(READY)],), (0, "", "")),
        ("status -q", ([status_answer(DEGRADED)],), (1, "", "")),
        ("status -q", (), (3, "", "")),
        ("status -q", ([{"error": "permission denied"}],), (4, "", "")),
        ("doctor -q", (), (2, MISSING, "")),
        ("reload -q", ([PROGRESS, DONE],), (0, "", "")),
        (
            "reload -q",
            ([PROGRESS, LEFT_OUT],),
            (1, "  a.yaml:3:1: error: bad\n", "openperouter: reload: 1 problem remains\n"),
        ),
        ("try -q --detach {green}", (ALIVE, [PROGRESS, DONE]), (0, "", "")),
        (
            "try -q --detach {green}",
            (ALIVE, [PROGRESS, LEFT_OUT]),
            (1, "on trial, but not all of it is in force: 1 problem remains\n  a.yaml:3:1: error: bad\n", ""),
        ),
        ("try -q --status", (), (1, "", "")),
    ],
)
def test_quiet_leaves_errors_and_the_exit_code(
    node: Node, command: str, scripts: tuple[list[dict[str, Any]], ...], ending: tuple[int, str, str]
) -> None:
    if scripts:
        node.answers(*scripts)
    assert node.run(command) == ending


@pytest.mark.parametrize(
    ("text", "command", "code"),
    [("many", "validate", 78), ("many", "plan", 78), ("many", "try --detach", 78)],
)
def test_quiet_shows_errors_and_no_warnings(node: Node, text: str, command: str, code: int) -> None:
    node.green.write_text(f"l3vnis:\n  - vni: {text}\n    VRF: red\n")
    got, out, error = node.run(f"{command} -q {{green}}")
    assert (got, error) == (code, "")
    [line] = out.splitlines()
    assert line.startswith(f"{node.green}:2:10: error: ")
    _, loud, _ = node.run(f"{command} {{green}}")
    assert "warning" in loud


def test_quiet_shows_no_notes_about_a_status_that_is_history(node: Node) -> None:
    (node.run_dir / "state.json").write_text(READY.to_json())
    code, loud, notes = node.run("show vni 100")
    assert code == 3
    assert "the daemon is not running; what follows is its last status" in notes
    assert node.run("show -q vni 100") == (3, loud, "")
    assert node.run("status -q") == (3, "", "")


def test_a_quiet_bundle_prints_its_path(node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    path = tmp_path / "report.tar.gz"
    assert node.run(f"bundle -q --output {path}") == (0, f"{path}\n", "")
    assert path.stat().st_size > 0


def test_a_quiet_migration_rewrites_and_prints_nothing(node: Node) -> None:
    node.green.write_text("underlays:\n  - asn: 64514\n    nics: [eth1]\n")
    assert node.run("migrate -q --check {green}") == (2, "", "")
    assert node.run("migrate -q {green}") == (0, "", "")
    assert "nics" not in node.green.read_text()


@pytest.mark.parametrize(
    "command",
    [
        "status -q --json",
        "plan -q --output yaml",
        "validate -q --output github",
        "doctor --json --output yaml",
        "show topology --dot --svg",
        "show topology --json --output dot",
        "try --status -q --json",
        "status --output xml",
        "logs -q",
        "ping -q 192.0.2.1",
        "events -q",
        "version -q",
        "explain -q",
        "-q status",
    ],
)
def test_options_that_contradict_or_mean_nothing_are_refused(
    node: Node, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with pytest.raises(SystemExit) as ending:
        node.run(command)
    assert ending.value.code == 64
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("option", ["--watch", "-v"])
def test_a_quiet_status_shows_nothing_more(node: Node, option: str) -> None:
    what = "--quiet shows nothing: it goes neither with --watch nor with --verbose"
    assert node.run(f"status -q {option}") == (64, "", f"openperouter: {what}\n")


def test_a_healthy_machine_has_no_line_in_a_quiet_doctor(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def examine(_settings: Settings, _settings_file: Path) -> list[Finding]:
        return judge(HEALTHY)

    monkeypatch.setattr(doctor, "examine", examine)
    assert node.run("doctor -q") == (0, "", "")
