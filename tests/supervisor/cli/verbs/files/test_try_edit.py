"""``openperouter try --edit``: an editor, its result checked, planned and tried; nothing that was typed is lost."""

from __future__ import annotations

import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.cli.verbs.files import try_
from tests.supervisor.cli.examples import L3VNI, UNDERLAY


class Editing:
    """A node's directories, an editor that does what a test says, and what is then tried."""

    def __init__(self, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings, self.root = settings, settings.parent
        self.configs = self.root / "configs"
        self.staging = self.root / "tmp"
        self.staging.mkdir()
        self.script = self.root / "editor.py"
        #: What is tried: the texts by their name, whether all files are meant, and the options.
        self.tried: list[tuple[dict[str, str], bool, float, bool]] = []
        self.outcome = 0
        monkeypatch.setattr("tempfile.tempdir", str(self.staging))
        monkeypatch.setattr(try_, "try_files", self._try_files)
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", f"{shlex.quote(sys.executable)} {self.script}")

    def _try_files(
        self, _settings: object, _file: Path, paths: list[Path], *, seconds: float, detach: bool, **_: object
    ) -> int:
        whole = paths[0].is_dir()
        files = sorted(paths[0].iterdir()) if whole else paths
        self.tried.append(({path.name: path.read_text() for path in files}, whole, seconds, detach))
        return self.outcome

    def editor(self, *statements: str) -> None:
        """Let the editor run statements with ``files``, the paths that it is given."""
        self.script.write_text(
            "\n".join(["import pathlib, sys", "files = list(map(pathlib.Path, sys.argv[1:]))", *statements])
        )

    def run(self, *words: str) -> int:
        return main(["try", "--settings", str(self.settings), "--edit", *words])

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.staging.rglob("*") if path.is_file())


VNI_101 = "[one.write_text(one.read_text().replace('vni: 100', 'vni: 101')) for one in files]"
BREAK = "[one.write_text('l3vnis: [') for one in files if 'l3vni' in one.name]"


@pytest.fixture
def editing(settings: Path, monkeypatch: pytest.MonkeyPatch) -> Editing:
    return Editing(settings, monkeypatch)


def test_all_files_are_edited_planned_and_tried(editing: Editing, capsys: pytest.CaptureFixture[str]) -> None:
    editing.editor(VNI_101)
    assert editing.run("--timeout", "30") == 0
    changed = L3VNI.replace("100", "101")
    files = {"openpe_l3vni.yaml": changed, "openpe_underlay.yaml": UNDERLAY}
    assert editing.tried == [(files, True, 30.0, False)]
    assert "changes openpe_l3vni.yaml" in capsys.readouterr().out
    assert editing.kept() == []
    assert (editing.configs / "openpe_l3vni.yaml").read_text() == L3VNI


def test_files_can_be_chosen_by_name_or_path(editing: Editing) -> None:
    editing.editor("assert [one.name for one in files] == ['openpe_l3vni.yaml']", VNI_101)
    assert editing.run("openpe_l3vni.yaml", "--detach") == 0
    assert editing.run(str(editing.configs / "openpe_l3vni.yaml")) == 0
    assert [(whole, detach) for _, whole, _, detach in editing.tried] == [(False, True), (False, False)]


def test_a_new_file_can_be_written(editing: Editing) -> None:
    editing.editor("files[0].write_text('l3vnis: [{vni: 300, vrf: green}]')")
    assert editing.run("openpe_green.yaml") == 0
    assert list(editing.tried[0][0]) == ["openpe_green.yaml"]


def test_the_copy_is_only_roots_and_files_keep_their_mode(editing: Editing) -> None:
    noted = editing.root / "noted"
    modes = "' '.join(f'{one.stat().st_mode:o}' for one in (files[0].parent, files[0]))"
    editing.editor(f"pathlib.Path({str(noted)!r}).write_text({modes})")
    (editing.configs / "openpe_l3vni.yaml").chmod(0o640)
    assert editing.run() == 0
    directory, file = (int(mode, 8) for mode in noted.read_text().split())
    assert (stat.S_IMODE(directory), stat.S_IMODE(file)) == (0o700, 0o640)


def test_without_a_change_nothing_is_tried(editing: Editing, capsys: pytest.CaptureFixture[str]) -> None:
    editing.editor()
    assert editing.run() == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert (editing.tried, editing.kept()) == ([], [])


def test_errors_are_named_and_the_copy_is_kept(editing: Editing, capsys: pytest.CaptureFixture[str]) -> None:
    editing.editor(BREAK)
    assert editing.run() == 78
    shown = capsys.readouterr()
    assert re.search(r"openperouter-edit-\w+/openpe_l3vni.yaml:\d+", shown.out)
    assert "what was edited is in" in shown.err
    assert editing.tried == []
    assert editing.kept() == ["openpe_l3vni.yaml", "openpe_underlay.yaml"]


def test_a_trial_that_was_reverted_leaves_the_copy(editing: Editing, capsys: pytest.CaptureFixture[str]) -> None:
    editing.editor(VNI_101)
    editing.outcome = 1
    assert editing.run("openpe_l3vni.yaml") == 1
    [path] = re.findall(r"openperouter try (\S+) tries it", capsys.readouterr().err)
    assert "vni: 101" in Path(path).read_text()


def test_a_detached_trial_is_undecided_and_leaves_the_copy(
    editing: Editing, capsys: pytest.CaptureFixture[str]
) -> None:
    editing.editor(VNI_101)
    assert editing.run("openpe_l3vni.yaml", "--detach") == 0
    [path] = re.findall(r"what was edited is in (\S+);", capsys.readouterr().err)
    assert "vni: 101" in (Path(path) / "openpe_l3vni.yaml").read_text()
    editing.editor()
    assert editing.run("openpe_underlay.yaml", "--detach") == 0
    assert editing.kept() == ["openpe_l3vni.yaml"]


@pytest.mark.parametrize(
    ("editor", "ending"),
    [
        ("false", (1, "the editor false ended with exit code 1; nothing has changed")),
        (
            "no-such-editor -x",
            (69, "the editor no-such-editor cannot be started: No such file or directory; set EDITOR"),
        ),
    ],
)
def test_an_editor_that_fails_changes_nothing(
    editing: Editing,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    editor: str,
    ending: tuple[int, str],
) -> None:
    monkeypatch.setenv("VISUAL", editor)
    code, message = ending
    assert editing.run() == code
    assert message in capsys.readouterr().err
    assert editing.tried == []


@pytest.mark.parametrize("name", ["other.yaml", "/etc/openpe_x.yaml", "sub/openpe_x.yaml"])
def test_only_router_files_are_edited(editing: Editing, capsys: pytest.CaptureFixture[str], name: str) -> None:
    editing.editor()
    assert editing.run(name) == 64
    assert "--edit takes names of router files" in capsys.readouterr().err
    assert list(editing.staging.iterdir()) == []


def test_without_a_configuration_init_is_proposed(editing: Editing, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(editing.configs)
    assert editing.run() == 64
    assert "openperouter init" in capsys.readouterr().err


class Terminal:
    """An input that is a terminal, with answers."""

    def __init__(self, answers: list[str]) -> None:
        self.answers: Iterator[str] = iter(answers)

    def isatty(self) -> bool:
        return True

    def ask(self, _question: str) -> str:
        try:
            return next(self.answers)
        except StopIteration:
            raise EOFError from None


#: The first run of the editor breaks a file, each later one repairs it.
IN_TWO_STEPS = (
    "done = pathlib.Path(__file__).with_name('once')",
    "[one.write_text('l3vnis: [{vni: 101, vrf: red}]' if done.exists() else 'l3vnis: [') for one in files]",
    "done.touch()",
)


@pytest.mark.parametrize(
    ("answers", "code", "tries"),
    [
        (["", "y"], 0, 1),
        (["y", "e", "YES"], 0, 1),
        (["n"], 78, 0),
        (["", ""], 1, 0),
        (["", "n"], 1, 0),
        ([], 78, 0),
        ([""], 1, 0),
    ],
)
def test_on_a_terminal_it_asks(
    editing: Editing, monkeypatch: pytest.MonkeyPatch, answers: list[str], code: int, tries: int
) -> None:
    terminal = Terminal(answers)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("builtins.input", terminal.ask)
    editing.editor(*IN_TWO_STEPS)
    assert editing.run("openpe_l3vni.yaml") == code
    assert len(editing.tried) == tries
    assert (editing.kept() == []) is (code == 0)
