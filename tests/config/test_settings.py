"""Settings: merging, checking, and what stays in force when a key is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.problems import Severity, errors
from config.settings import Settings, load_settings


def load(tmp_path: Path, main: str | None = None, **fragments: str) -> tuple[Settings, list[str]]:
    conf_d = tmp_path / "conf.d"
    conf_d.mkdir()
    if main is not None:
        (tmp_path / "main.yaml").write_text(main)
    for name, text in fragments.items():
        (conf_d / f"{name}.yaml").write_text(text)
    settings, problems = load_settings(tmp_path / "main.yaml", conf_d)
    return settings, [str(problem).replace(str(tmp_path) + "/", "") for problem in problems]


def test_without_files_the_defaults_hold(tmp_path: Path) -> None:
    settings, problems = load_settings(tmp_path / "main.yaml", tmp_path / "conf.d")
    assert (settings, problems) == (Settings(), ())


def test_later_fragments_win_key_by_key(tmp_path: Path) -> None:
    settings, problems = load(
        tmp_path, "netns: one\nsettleSeconds: 2\n", b="netns: three\n", a="netns: two\nlogLevel: debug\n"
    )
    assert not problems
    assert (settings.netns, settings.settle_seconds, settings.log_level) == ("three", 2.0, "debug")


def test_only_visible_yaml_fragments_count(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    for name in ("x.yaml~", "x.yml", ".hidden.yaml"):
        (tmp_path / "c" / name).write_text("netns: wrong\n")
    assert load_settings(tmp_path / "main.yaml", tmp_path / "c") == (Settings(), ())


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    assert load(tmp_path, "stateDri: /x\n")[1] == [
        "main.yaml:1:1: error: stateDri: unknown key; did you mean 'stateDir'?"
    ]


def test_attribute_names_are_not_keys(tmp_path: Path) -> None:
    settings, problems = load(tmp_path, "state_dir: /x\n")
    assert "did you mean 'stateDir'?" in problems[0]
    assert settings == Settings()


def test_a_key_in_another_case_works_with_a_warning(tmp_path: Path) -> None:
    settings, problems = load(tmp_path, "NETNS: other\n")
    assert settings.netns == "other"
    assert problems == ["main.yaml:1:1: warning: NETNS: accepted as 'netns'; use this spelling"]


@pytest.mark.parametrize(
    "line",
    [
        "stateDir: relative", "stateDir: /a/../b", "stateDir: 7x", "settleSeconds: -1", "settleSeconds: .inf",
        "auditIntervalSeconds: 0", "bgpListenLimit: 0", "bgpListenLimit: 65536", "logLevel: loud", "netns: a/b",
        "netns: 'a b'", "namespace: Upper", "frrPathspace: ''", "vtysh: [x]", "autoApply: 'no'", "autoApply: 0",
    ],
)  # fmt: skip
def test_a_bad_value_is_an_error_and_leaves_the_default(tmp_path: Path, line: str) -> None:
    settings, problems = load(tmp_path, f"{line}\nfrrRunDir: /good\n")
    assert len(problems) == 1
    assert problems[0].startswith("main.yaml:1:")
    assert settings == Settings(frr_run_dir=Path("/good"))


@pytest.mark.parametrize(("word", "level"), [("WARN", "warning"), ("Debug", "debug"), ("error", "error")])
def test_common_spellings_of_log_levels_are_accepted(tmp_path: Path, word: str, level: str) -> None:
    assert load(tmp_path, f"logLevel: {word}")[0].log_level == level


def test_a_broken_file_does_not_hide_the_others(tmp_path: Path) -> None:
    settings, problems = load(tmp_path, "a: [", good="netns: other\n")
    assert len(problems) == 1
    assert settings.netns == "other"


def test_a_list_is_not_a_settings_file(tmp_path: Path) -> None:
    assert load(tmp_path, "- a\n")[1] == ["main.yaml:1:1: error: must be a mapping (key: value)"]


def test_an_unreadable_file_or_directory_is_a_problem_and_not_a_default(tmp_path: Path) -> None:
    (tmp_path / "main.yaml").mkdir()
    (tmp_path / "conf.d").write_text("")
    problems = load_settings(tmp_path / "main.yaml", tmp_path / "conf.d")[1]
    assert len(errors(problems)) == 2


def test_a_key_without_value_keeps_the_default(tmp_path: Path) -> None:
    assert load(tmp_path, "netns:\n") == (Settings(), [])


def test_every_setting_is_described_and_immutable() -> None:
    assert all(info.description for info in Settings.model_fields.values())
    with pytest.raises(ValueError):
        Settings().netns = "x"  # type: ignore[misc]


def test_problems_of_settings_know_their_severity(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("NETNS: a b\n")
    _, problems = load_settings(tmp_path / "m", tmp_path / "none")
    assert [problem.severity for problem in problems] == [Severity.WARNING, Severity.ERROR]
