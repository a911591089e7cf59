"""``openperouter try``: refusing, asking, keeping and reverting, against a daemon that only answers."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

import actors.netlink.preview
from actors.static_config.trial import Journal, Trial, now
from config.problems import Origin, Problem, Severity
from config.resolve.host_networks import HostNetwork
from config.status import Status
from config.store.last_good import LastGood, to_json
from supervisor.cli import main
from supervisor.cli.verbs.files import try_
from tests.supervisor.cli.examples import L3VNI, SECRETS, UNDERLAY, api_l3vni, remember_api

CHECKOUT = Path(__file__).parents[5]
DEADLINE = 60.0
GREEN = "l3vnis: [{name: green, vrf: green, vni: 300}]\n"
DONE = {"event": "done", "ok": True, "reason": "", "problems": [], "summary": "ready: all of it"}
READY = Status(ready=True, summary="ready: what was before")


@contextmanager
def daemon(
    directory: Path, done: dict[str, object] | None = None, statuses: Sequence[Status] = (READY,)
) -> Iterator[list[str]]:
    """A daemon that answers every reload with ``done``; gives the verbs of the requests.

    It has ``statuses`` one after the other; it is asked for one only while it has the first of them.
    """
    verbs: list[str] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "control.sock"))
        server.listen(8)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    verb = json.loads(connection.recv(4096))["verb"]
                    verbs.append(verb)
                    known = [f'{{"status": {one.to_json()}}}' for one in statuses]
                    answers = {"status": known[:1], "watch": known}.get(verb, [json.dumps(done or DONE)])
                    connection.sendall("".join(f"{answer}\n" for answer in answers).encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield verbs
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


class Place:
    """The directories of one node, and a candidate beside them."""

    def __init__(self, settings: Path) -> None:
        self.settings = settings
        self.root = settings.parent
        self.configs = self.root / "configs"
        self.state = self.root / "state"
        self.journal = Journal(self.state)
        self.new = self.root / "new"
        self.new.mkdir()
        self.green = self.new / "openpe_green.yaml"
        self.green.write_text(GREEN)
        self.green.chmod(0o640)

    def run(self, *arguments: object) -> int:
        return main(["--settings", str(self.settings), "try", *map(str, arguments)])

    def command(self, *arguments: object) -> list[str]:
        program = [sys.executable, "-m", "supervisor", "--settings", str(self.settings), "try"]
        return [*program, *map(str, arguments)]

    def process(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=CHECKOUT,
        )

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.configs.iterdir())}

    def begin(self, *, seconds: float = 60.0, removed: tuple[str, ...] = ()) -> Trial:
        """Put a trial of green on disk as the command does."""
        moment = now()
        texts = {str(self.configs / "openpe_green.yaml"): GREEN, str(self.configs / "openpe_underlay.yaml"): UNDERLAY}
        changed = ("openpe_green.yaml",)
        trial = Trial(
            texts,
            changed,
            removed,
            {changed[0]: 0o640},
            moment.boot_id,
            moment.seconds + seconds,
            time.time() + seconds,
        )
        self.journal.start(trial)
        return trial


@pytest.fixture(autouse=True)
def signals_are_not_ignored() -> Iterator[None]:
    """Under nohup, or in a shell's background, the tests would pass on that SIGHUP or SIGINT is ignored.

    The command respects that on purpose.
    """
    handlers: dict[signal.Signals, Any] = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def place(settings: Path) -> Place:
    return Place(settings)


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    read = ""
    while words not in read:
        line = process.stdout.readline()
        assert line, read
        read += line
    return read


def test_errors_are_named_where_they_are_and_nothing_is_tried(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.green.write_text(GREEN.replace("300", "many"))
    with daemon(place.root / "run") as verbs:
        assert place.run(place.green) == 78
    assert f"{place.green}:1:" in capsys.readouterr().out
    assert verbs == []
    assert list(place.state.iterdir()) == []


def test_a_conflict_with_a_file_in_force_is_an_error_too(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.green.write_text(GREEN.replace("300", "100"))
    assert place.run(place.green) == 78
    assert "100" in capsys.readouterr().out
    assert place.journal.load() is None


def test_a_conflict_with_an_api_object_is_an_error(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in force wins over the newcomer."""
    remember_api(place.root, api_l3vni("blue", 300), first=True)
    assert place.run(place.green) == 78
    assert "VNI 300 is also used by L3VNI tenant/blue" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what the machine uses")
@pytest.mark.parametrize("network", ["100.65.3.0/24", "100.65.3.53/32"])
def test_tunnel_endpoints_that_take_a_network_of_the_node_are_not_tried(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    used = HostNetwork(ip_network(network), f"the host's route {network}")
    monkeypatch.setattr(actors.netlink.preview, "host_networks", lambda settings: (used,))
    wide = place.new / "openpe_underlay.yaml"
    wide.write_text(UNDERLAY.replace("100.65.0.0/24", "100.65.0.0/16"))
    with daemon(place.root / "run") as verbs:
        assert place.run("--detach", wide) == 78
        assert f"cidrs[0]: 100.65.0.0/16 contains the host's route {network}" in capsys.readouterr().out
        assert verbs == []
        assert place.journal.load() is None
        # A range beside it is tried.
        wide.write_text(UNDERLAY.replace("100.65.0.0/24", "100.66.0.0/16"))
        assert place.run("--detach", wide) == 0
    assert place.journal.load() is not None


def test_conflicts_that_api_objects_lose_are_warnings(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    remember_api(place.root, api_l3vni("blue", 300), api_l3vni("bad", 0))
    with daemon(place.root / "run"):
        assert place.run("--detach", place.green) == 0
    shown = capsys.readouterr().out
    assert "tenant/blue@7: warning: L3VNI tenant/blue: vni: VNI 300 is also used by" in shown
    assert "bad" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a directory or files"),
        (["--confirm", "new"], "give a directory or files"),
        (["new/other.yaml"], "its name must be openpe_"),
        (["empty"], "has no openpe_"),
        (["configs"], "is what is in force"),
        (["configs/openpe_l3vni.yaml"], "is what is in force"),
        (["new", "new/openpe_green.yaml"], "either one directory or files"),
        (["--timeout", "0", "new"], "--timeout must be"),
    ],
)
def test_wrong_usage_is_explained(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    (place.root / "empty").mkdir()
    (place.new / "other.yaml").write_text("")
    monkeypatch.chdir(place.root)
    assert place.run(*arguments) == 64
    assert message in capsys.readouterr().err
    assert place.journal.load() is None


def test_password_files_that_differ_cannot_be_tried(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (place.new / "secrets").mkdir()
    (place.new / "secrets" / "fabric").write_text("hunter2hunter2")
    assert place.run(place.new) == 64
    shown = capsys.readouterr()
    assert "secrets/fabric" in shown.err
    assert "hunter2" not in shown.err + shown.out


def test_files_that_are_in_force_already_need_no_trial(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (place.new / "openpe_l3vni.yaml").write_text(L3VNI)
    assert place.run(place.new / "openpe_l3vni.yaml") == 0
    assert "nothing to try" in capsys.readouterr().out


def test_without_a_daemon_nothing_is_tried(place: Place) -> None:
    assert place.run("--detach", place.green) == 3
    assert place.journal.load() is None


def test_files_are_added_to_those_in_force(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(place.root / "run") as verbs:
        assert place.run("--detach", "--timeout", "50", place.green) == 0
    trial = place.journal.load()
    assert trial is not None
    assert sorted(Path(path).name for path in trial.texts) == [
        "openpe_green.yaml",
        "openpe_l3vni.yaml",
        "openpe_underlay.yaml",
    ]
    assert (trial.changed, trial.removed) == (("openpe_green.yaml",), ())
    assert 40 < trial.left(now()) <= 50
    assert verbs == ["status", "reload"]
    shown = capsys.readouterr().out
    assert "adds openpe_green.yaml" in shown
    assert not any(secret in shown for secret in SECRETS)


def test_a_directory_stands_for_the_whole_configuration(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (place.new / "openpe_underlay.yaml").write_text(UNDERLAY.replace("100.65.0.0", "100.66.0.0"))
    with daemon(place.root / "run"):
        assert place.run("--detach", place.new) == 0
    trial = place.journal.load()
    assert trial is not None
    assert len(trial.texts) == 2
    assert trial.changed == ("openpe_green.yaml", "openpe_underlay.yaml")
    assert trial.removed == ("openpe_l3vni.yaml",)
    assert "removes openpe_l3vni.yaml" in capsys.readouterr().out


def test_a_trial_that_is_not_all_in_force_says_why(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    done = {**DONE, "ok": False, "reason": "1 problem(s) remain", "problems": ["green: no"]}
    with daemon(place.root / "run", done):
        assert place.run("--detach", place.green) == 1
    assert "green: no" in capsys.readouterr().out
    assert place.journal.load() is not None


def test_enter_keeps_it(place: Place) -> None:
    with daemon(place.root / "run"), place.process(place.green) as process:
        read_until(process, "Press ENTER")
        assert place.journal.load() is not None
        assert "openpe_green.yaml" not in place.files()
        shown, _ = process.communicate("\n", timeout=DEADLINE)
    assert process.returncode == 0, shown
    assert place.files()["openpe_green.yaml"] == GREEN
    assert place.journal.load() is None


def test_the_end_of_the_input_reverts(place: Place) -> None:
    before = place.files()
    with daemon(place.root / "run"), place.process(place.green) as process:
        read_until(process, "Press ENTER")
        shown, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert "reverted" in shown
    assert "the files are in force" in shown
    assert place.journal.load() is None
    assert place.files() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reverts_at_once(place: Place, number: signal.Signals) -> None:
    with daemon(place.root / "run"), place.process(place.green) as process:
        read_until(process, "Press ENTER")
        process.send_signal(number)
        assert process.wait(DEADLINE) == 1
    assert place.journal.load() is None
    assert "openpe_green.yaml" not in place.files()


def test_a_terminal_that_hangs_up_reverts_at_once(place: Place) -> None:
    with daemon(place.root / "run"):
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(CHECKOUT)
            os.execv(sys.executable, place.command(place.green))  # noqa: S606
        seen = b""
        while b"Press ENTER" not in seen:
            seen += os.read(terminal, 4096)
        assert place.journal.load() is not None
        os.close(terminal)
        os.waitpid(child, 0)
    assert place.journal.load() is None
    ending = place.journal.last()
    assert ending is not None
    assert "terminal" in ending.reason
    assert "openpe_green.yaml" not in place.files()


def test_an_enter_from_before_the_question_keeps_nothing(place: Place) -> None:
    with daemon(place.root / "run"):
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(CHECKOUT)
            os.execv(sys.executable, place.command("--timeout", "3", place.green))  # noqa: S606
        os.write(terminal, b"\n")
        seen = b""
        while b"reverted: it was not confirmed in time" not in seen:
            seen += os.read(terminal, 4096)
        os.waitpid(child, 0)
        os.close(terminal)
    assert "openpe_green.yaml" not in place.files()


def test_a_kill_leaves_the_trial_to_the_daemon(place: Place) -> None:
    with daemon(place.root / "run"), place.process(place.green) as process:
        read_until(process, "Press ENTER")
        process.kill()
    assert place.journal.load() is not None


def test_the_end_of_the_time_is_reported(place: Place) -> None:
    with daemon(place.root / "run"), place.process("--timeout", "1", place.green) as process:
        shown = read_until(process, "the files are in force")
        assert process.wait(DEADLINE) == 1
    assert "reverted: it was not confirmed in time" in shown


def test_a_confirmation_in_another_session_ends_the_question(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(place.root / "run"), place.process(place.green) as process:
        read_until(process, "Press ENTER")
        assert place.run("--confirm") == 0
        assert process.wait(DEADLINE) == 0
    assert place.files()["openpe_green.yaml"] == GREEN
    assert "kept" in capsys.readouterr().out


def test_another_session_reverts(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a reload: that would take in what waits for one."""
    place.begin()
    with daemon(place.root / "run") as verbs:
        assert place.run("--revert") == 0
    assert verbs == ["watch"]
    assert place.journal.load() is None
    assert capsys.readouterr().out == "reverted\nthe files are in force: ready: what was before\n"


def test_a_trial_that_is_interrupted_ends_without_a_reload(place: Place) -> None:
    with daemon(place.root / "run") as verbs, place.process(place.green) as process:
        read_until(process, "Press ENTER")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 1
    assert verbs == ["status", "reload", "watch"]


def about_trial(place: Place) -> Problem:
    """The warning that a daemon has while a trial is in force."""
    return Problem("on trial", Origin(path=str(place.journal.open_file)), severity=Severity.WARNING)


def test_the_end_of_a_trial_is_reported_once_the_daemon_has_verified_it(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = Status(ready=True, summary="ready: the trial", problems=(about_trial(place),))
    broken = Problem("is broken", Origin(path="/configs/openpe_red.yaml", line=3))
    of_api = Problem("of the API", Origin(namespace="tenant", name="blue"))
    after = Status(ready=True, summary="degraded", problems=(broken, of_api))
    place.begin()
    with daemon(place.root / "run", statuses=(tried, Status(summary="applying"), after, READY)):
        assert place.run("--revert") == 0
    assert capsys.readouterr().out.splitlines() == [
        "reverted",
        "  ready: the trial",
        "  applying",
        "the files are in force, as far as possible: 1 problem remains; everything else is in force",
        "  /configs/openpe_red.yaml:3: error: is broken",
    ]


def test_a_daemon_that_ends_before_a_trial_is_over_is_reported(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.begin()
    with daemon(place.root / "run", statuses=(Status(summary="applying"),)):
        assert place.run("--revert") == 0
    assert "as far as possible: the daemon ended before" in capsys.readouterr().out


def test_a_daemon_that_does_not_get_there_is_not_waited_for_indefinitely(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_, "SETTLE_SECONDS", 0.0)
    place.begin()
    with daemon(place.root / "run", statuses=(Status(summary="applying"), READY)):
        assert place.run("--revert") == 0
    assert "as far as possible: not verified within 0 s: applying" in capsys.readouterr().out


def test_while_files_wait_for_a_reload_nothing_is_tried(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """They would be part of the trial, and in force for good once it is confirmed, although no one asked for that."""
    message = "changes wait for a reload (autoApply is false): openpe_red.yaml; openperouter reload applies them"
    held = Problem(message, Origin(path=str(place.configs)), severity=Severity.WARNING)
    with daemon(place.root / "run", statuses=(Status(ready=True, problems=(held,)),)) as verbs:
        assert place.run("--detach", place.green) == 1
    assert capsys.readouterr().err == f"openperouter: not tried: {message}\n"
    assert verbs == ["status"]
    assert place.journal.load() is None


def test_single_files_are_not_tried_while_the_directory_of_the_others_is_missing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    underlay = str(place.configs / "openpe_underlay.yaml")
    (place.state / "in-force.json").write_text(to_json(LastGood().with_texts({underlay: UNDERLAY})))
    place.configs.rename(place.configs.with_name("elsewhere"))
    with daemon(place.root / "run"):
        assert place.run("--detach", place.green) == 64
        assert f"{place.configs} is missing, but its last good files are in force" in capsys.readouterr().err
        assert place.journal.load() is None
        # A directory has all that is to be in force.
        (place.new / "openpe_underlay.yaml").write_text(UNDERLAY)
        assert place.run("--detach", place.new) == 0
    assert place.journal.load() is not None


def test_keeping_writes_removes_and_saves_with_modes(place: Place) -> None:
    trial = place.begin(removed=("openpe_l3vni.yaml",))
    before = place.files()
    assert place.run("--confirm") == 0
    assert list(place.files()) == ["openpe_green.yaml", "openpe_underlay.yaml"]
    assert (place.configs / "openpe_green.yaml").stat().st_mode & 0o777 == 0o640
    saved = place.journal.saved_directory(trial)
    assert {path.stat().st_mode & 0o777 for path in (saved, saved.parent)} == {0o700}
    assert {path.name: path.read_text() for path in saved.iterdir()} == {
        "openpe_l3vni.yaml": before["openpe_l3vni.yaml"]
    }


def test_a_file_that_is_replaced_keeps_its_mode(place: Place) -> None:
    (place.configs / "openpe_green.yaml").write_text("l3vnis: []\n")
    (place.configs / "openpe_green.yaml").chmod(0o600)
    place.begin()
    assert place.run("--confirm") == 0
    assert (place.configs / "openpe_green.yaml").stat().st_mode & 0o777 == 0o600
    assert place.files()["openpe_green.yaml"] == GREEN


def test_a_confirmation_that_was_interrupted_is_completed(place: Place) -> None:
    place.journal.accept(place.begin(removed=("openpe_l3vni.yaml",)))
    (place.configs / "openpe_green.yaml").write_text(GREEN)
    assert place.run("--confirm") == 0
    assert "openpe_l3vni.yaml" not in place.files()
    assert place.journal.load() is None


def test_a_confirmation_that_fails_says_so_and_can_be_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.begin(removed=("openpe_l3vni.yaml",))
    before = place.files()

    def refuse(path: Path) -> None:
        if path == place.configs:
            raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as broken:
        broken.setattr("actors.static_config.trial.sync_directory", refuse)
        assert [place.run("--confirm"), place.run("--confirm")] == [69, 69]
    assert "--confirm tries again" in capsys.readouterr().err
    assert place.journal.load() is not None
    assert place.run("--revert") == 0
    assert place.files() == before


def test_after_the_deadline_it_cannot_be_confirmed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.begin(seconds=0.0)
    assert place.run("--confirm") == 1
    assert "too late" in capsys.readouterr().err
    assert "openpe_green.yaml" not in place.files()


def test_a_second_trial_is_refused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    trial = place.begin()
    with daemon(place.root / "run"):
        assert place.run("--detach", place.green) == 1
    assert "in force already" in capsys.readouterr().err
    assert place.journal.load() == trial


def test_the_status_shows_the_trial_or_how_the_last_one_ended(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.run("--status") == 1
    assert capsys.readouterr().out == "no trial is in force\n"
    trial = place.begin()
    assert place.run("--status") == 0
    shown = capsys.readouterr().out
    assert "s left" in shown
    assert f"writes {place.configs / 'openpe_green.yaml'}" in shown
    place.journal.revert(trial, "enough")
    assert place.run("--status") == 1
    assert "the trial was reverted: enough" in capsys.readouterr().out


def test_programs_see_the_trial_and_how_the_last_one_ended(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(code: int) -> Any:
        assert place.run("--status", "--json") == code
        return json.loads(capsys.readouterr().out)

    assert shown(1) == {"schemaVersion": 1, "trial": None, "last": None}
    trial = place.begin()
    seen = shown(0)["trial"]
    assert 0 < seen.pop("secondsLeft") <= 120
    writes = [str(place.configs / name) for name in trial.changed]
    assert seen == {"id": trial.id, "kept": False, "writes": writes, "removes": []}
    assert str(place.configs / "openpe_green.yaml") in writes
    place.journal.revert(trial, "enough")
    ended = shown(1)
    assert ended["last"].pop("endedAt").startswith("20")
    last = {"id": trial.id, "kept": False, "reason": "enough"}
    assert ended == {"schemaVersion": 1, "trial": None, "last": last}
    assert place.run("--json", place.green) == 64


@pytest.mark.parametrize(
    ("typed", "code", "ending"),
    [("\n", 0, []), ("", 1, ["the trial was reverted: the input of the command that started it ended"])],
)
def test_quiet_asks_and_says_only_why_it_was_reverted(place: Place, typed: str, code: int, ending: list[str]) -> None:
    with daemon(place.root / "run"):
        process = place.process("--quiet", place.green)
        shown, _ = process.communicate(typed, timeout=DEADLINE)
    assert process.returncode == code
    question, *rest = shown.splitlines()
    assert question.startswith("Press ENTER to keep it; it is reverted in ")
    assert rest == ending


def test_a_damaged_trial_can_be_ended(place: Place) -> None:
    place.journal.open_file.write_text("{")
    assert place.run("--confirm") == 1
    assert place.run("--revert") == 0
    assert not place.journal.open_file.exists()
