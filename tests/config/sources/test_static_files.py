"""The directory of files: what stays in force when something is broken."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.desired import Secret
from config.outcomes import NodeIdentity
from config.problems import Kind
from config.resolve.resolution import resolve
from config.resources import Resource, UnknownContent, Unusable
from config.sources import static_files
from config.sources.router_file import FileContent, parse_router_file
from config.sources.static_files import ParsedFiles, StaticRead, read_directory
from config.store.last_good import LastGood, from_json, to_json
from config.syntax.files import UnreadableFileError

from ..samples import RED_FILE, UNDERLAY_FILE

BLUE = "l3vnis:\n  - {vrf: blue, vni: 200}\n"


def write(directory: Path, **files: str) -> None:
    for name, text in files.items():
        (directory / f"openpe_{name}.yaml").write_text(text)


def read(directory: Path, previous: StaticRead | None = None) -> StaticRead:
    return read_directory(directory, "node", previous.last_good if previous else LastGood())


def specs(found: StaticRead) -> dict[str, str]:
    return {resource.name.removeprefix("static-node-"): type(resource.spec).__name__ for resource in found.resources}


GOOD = {"underlay-0": "Underlay", "red": "L3Vni"}


def test_a_directory_that_does_not_exist_has_no_files(tmp_path: Path) -> None:
    found = read(tmp_path / "none")
    assert (found.resources, found.problems, dict(found.last_good.texts)) == ((), (), {})


def test_only_files_of_the_pattern_are_read(tmp_path: Path) -> None:
    for name in ("other.yaml", "openpe_x.yml", "openpe_x.yaml~", ".openpe_x.yaml", "openpe-x.yaml", "README"):
        (tmp_path / name).write_text("broken: [")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", x="broken: [")
    named = "warning: ignored: router files are named openpe_*.yaml"
    assert [str(problem).removeprefix(f"{tmp_path}/") for problem in read(tmp_path).problems] == [
        f"openpe-x.yaml: {named}",
        "openpe_x.yml: warning: ignored: rename it to openpe_x.yaml",
        f"other.yaml: {named}",
    ]


def test_files_are_read_in_lexical_order(tmp_path: Path) -> None:
    write(tmp_path, b=BLUE, a=UNDERLAY_FILE, c=RED_FILE)
    assert list(specs(read(tmp_path))) == ["underlay-0", "blue", "red"]


def test_a_file_that_breaks_keeps_its_last_good_content(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    good = read(tmp_path)
    write(tmp_path, b="l3vnis: [", c=BLUE)
    broken = read(tmp_path, good)
    assert specs(broken) == GOOD | {"blue": "L3Vni"}
    (problem,) = broken.problems
    assert problem.origin.path == str(tmp_path / "openpe_b.yaml")
    assert problem.in_force == "its last good content stays in force"
    write(tmp_path, b=BLUE.replace("blue", "green").replace("200", "201"))
    assert specs(read(tmp_path, broken)) == {"underlay-0": "Underlay", "green": "L3Vni", "blue": "L3Vni"}


def test_last_good_content_survives_many_readings_and_a_restart(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    found = read(tmp_path)
    write(tmp_path, b="nonsense: 1\n")
    for _ in range(3):
        found = read(tmp_path, found)
    after = read_directory(tmp_path, "node", from_json(to_json(found.last_good)))
    assert specs(after) == GOOD
    assert after.last_good.texts == found.last_good.texts


def test_a_removed_file_is_gone_even_after_it_was_broken(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    good = read(tmp_path)
    write(tmp_path, b="x: [")
    broken = read(tmp_path, good)
    (tmp_path / "openpe_b.yaml").unlink()
    gone = read(tmp_path, broken)
    assert specs(gone) == {"underlay-0": "Underlay"}
    assert list(gone.last_good.texts) == [str(tmp_path / "openpe_a.yaml")]


def test_an_emptied_file_is_an_intention(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    good = read(tmp_path)
    write(tmp_path, b="")
    assert specs(read(tmp_path, good)) == {"underlay-0": "Underlay"}


def test_a_wrong_entry_does_not_bring_the_files_old_content_back(tmp_path: Path) -> None:
    write(tmp_path, b=RED_FILE)
    good = read(tmp_path)
    write(tmp_path, b=RED_FILE.replace("vni: 100", "vni: 0") + "  - {vrf: blue, vni: 2}\n")
    assert specs(read(tmp_path, good)) == {"red": "Unusable", "blue": "L3Vni"}


def test_a_broken_link_is_not_a_removed_file(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    good = read(tmp_path)
    (tmp_path / "openpe_b.yaml").unlink()
    (tmp_path / "openpe_b.yaml").symlink_to("nowhere")
    broken = read(tmp_path, good)
    assert specs(broken) == GOOD
    assert "symbolic link to a file that does not exist" in broken.problems[0].message


def test_a_file_that_became_a_directory_keeps_its_last_good_content(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    good = read(tmp_path)
    (tmp_path / "openpe_b.yaml").unlink()
    (tmp_path / "openpe_b.yaml").mkdir()
    assert specs(read(tmp_path, good)) == GOOD


def test_a_directory_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    good = read(tmp_path)

    def fail(path: Path) -> list[str]:
        raise UnreadableFileError(path, "cannot be read: Input/output error")

    monkeypatch.setattr(static_files, "scan_directory", fail)
    kept = read(tmp_path, good)
    assert specs(kept) == GOOD
    assert kept.last_good is good.last_good
    assert kept.problems[0].in_force == "the last good content of 2 files stays in force"


def test_a_directory_that_is_gone_keeps_its_files_until_that_is_confirmed(tmp_path: Path) -> None:
    configs = tmp_path / "configs"
    configs.mkdir()
    write(configs, a=UNDERLAY_FILE, b=RED_FILE)
    good = read(configs)
    configs.rename(tmp_path / "elsewhere")
    gone = read(configs, good)
    assert specs(gone) == GOOD
    assert gone.last_good == good.last_good
    (problem,) = gone.problems
    assert (problem.origin.path, problem.severity) == (str(configs), "error")
    assert "reload to confirm" in problem.message
    assert problem.in_force == "the last good content of 2 files stays in force"
    confirmed = read_directory(configs, "node", gone.last_good, absence_confirmed=True)
    assert (confirmed.resources, confirmed.problems, dict(confirmed.last_good.texts)) == ((), (), {})


@pytest.mark.parametrize("absence_confirmed", [False, True])
def test_a_directory_behind_a_link_to_nowhere_is_never_an_absent_one(tmp_path: Path, absence_confirmed: bool) -> None:
    configs = tmp_path / "configs"
    configs.mkdir()
    write(configs, a=UNDERLAY_FILE, b=RED_FILE)
    good = read(configs)
    configs.rename(tmp_path / "elsewhere")
    configs.symlink_to("nowhere")
    assert specs(read_directory(configs, "node", good.last_good, absence_confirmed=absence_confirmed)) == GOOD


def test_an_emptied_directory_is_an_intention(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE)
    good = read(tmp_path)
    (tmp_path / "openpe_a.yaml").unlink()
    assert (read(tmp_path, good).resources, read(tmp_path, good).problems) == ((), ())


def placeholder(found: StaticRead) -> list[Resource]:
    return [resource for resource in found.resources if isinstance(resource.spec, UnknownContent)]


def test_an_unreadable_directory_of_unknown_content_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "configs").write_text("a file")
    found = read(tmp_path / "configs")
    assert [resource.kind for resource in placeholder(found)] == [Kind.UNDERLAY]
    assert resolve(found.resources, NodeIdentity("node", 0)).desired is None


def test_a_file_broken_from_the_start_may_hide_the_underlay_but_disturbs_no_other(tmp_path: Path) -> None:
    write(tmp_path, a="underlays: [", b=RED_FILE)
    found = read(tmp_path)
    assert found.problems[0].in_force == "it has no last good content"
    assert resolve(found.resources, NodeIdentity("node", 0)).desired is None
    write(tmp_path, b=UNDERLAY_FILE + RED_FILE)
    found = read(tmp_path)
    assert len(placeholder(found)) == 1
    assert resolve(found.resources, NodeIdentity("node", 0)).desired is not None


def test_a_stored_text_that_this_version_refuses_counts_as_unknown(tmp_path: Path) -> None:
    write(tmp_path, a="x: [")
    stored = LastGood({str(tmp_path / "openpe_a.yaml"): "no longer: known\n"})
    found = read_directory(tmp_path, "node", stored)
    assert len(placeholder(found)) == 1


def test_an_invalid_underlay_is_visible_as_such(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE.replace("64514", "0"), b=RED_FILE)
    found = read(tmp_path)
    assert [resource.kind for resource in found.resources if isinstance(resource.spec, Unusable)] == [Kind.UNDERLAY]
    assert resolve(found.resources, NodeIdentity("node", 0)).desired is None


def test_the_same_name_from_two_files_stays_apart(tmp_path: Path) -> None:
    snippet = "rawfrrconfigs:\n  - {rawConfig: a}\n"
    write(tmp_path, one=snippet + BLUE, two=snippet + BLUE)
    names = [resource.name for resource in read(tmp_path).resources]
    assert names == [
        "static-node-blue", "static-node-rawfrrconfig-0", "static-node-blue-two", "static-node-rawfrrconfig-0-two",
    ]  # fmt: skip


def test_no_text_of_a_file_shows_in_the_reading(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE.replace("address: 192.168.11.2", "address: 192.168.11.2\n        password: s3cret"))
    assert "s3cret" not in repr(read(tmp_path))


WITH_SECRET = UNDERLAY_FILE.replace("address: 192.168.11.2", "address: 192.168.11.2\n        passwordSecret: fabric")


def secret_file(directory: Path, text: str = "s3cret") -> Path:
    path = directory / "secrets" / "fabric"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_password_file_that_breaks_keeps_the_last_good_password_over_a_restart(tmp_path: Path) -> None:
    write(tmp_path, a=WITH_SECRET)
    path = secret_file(tmp_path)
    stored = to_json(read(tmp_path).last_good)
    for damage in (lambda: path.write_text("s3 cret"), path.unlink):
        damage()
        found = read_directory(tmp_path, "node", from_json(stored))
        assert [resource.spec.neighbors[0].password for resource in found.resources] == [Secret("s3cret")]
        (problem,) = found.problems
        assert (problem.severity, problem.in_force) == ("error", "the last good password stays in force")
        assert str(path) in problem.message
        stored = to_json(found.last_good)
    secret_file(tmp_path, "n3wer")
    fixed = read_directory(tmp_path, "node", from_json(stored))
    assert fixed.resources[0].spec.neighbors[0].password == Secret("n3wer")
    assert fixed.problems == ()


def test_a_password_is_remembered_only_while_a_file_refers_to_it(tmp_path: Path) -> None:
    write(tmp_path, a=WITH_SECRET)
    path = secret_file(tmp_path)
    good = read(tmp_path)
    assert dict(good.last_good.secrets) == {str(path): Secret("s3cret")}
    assert "s3cret" not in repr(good)
    write(tmp_path, a="x: [")
    broken = read(tmp_path, good)
    assert broken.last_good == good.last_good
    write(tmp_path, a=UNDERLAY_FILE)
    assert dict(read(tmp_path, broken).last_good.secrets) == {}


WITH_PASSWORD = UNDERLAY_FILE.replace("address: 192.168.11.2\n", "address: 192.168.11.2\n        passwordSecret: tor\n")
INLINE_PASSWORD = WITH_PASSWORD.replace("passwordSecret: tor", "password: one")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files that are parsed from now on."""
    parsed: list[str] = []

    def parse_and_count(content: bytes, path: Path, *args: Any, **kwargs: Any) -> FileContent:
        parsed.append(path.name)
        return parse_router_file(content, path, *args, **kwargs)

    monkeypatch.setattr(static_files, "parse_router_file", parse_and_count)
    return parsed


def test_a_file_without_changes_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    calls = counted(monkeypatch)
    parsed: ParsedFiles = {}
    first = read_directory(tmp_path, "node", LastGood(), parsed=parsed)
    assert read_directory(tmp_path, "node", first.last_good, parsed=parsed) == first
    assert calls == ["openpe_a.yaml", "openpe_b.yaml"]
    write(tmp_path, b=BLUE)
    assert "blue" in specs(read_directory(tmp_path, "node", first.last_good, parsed=parsed))
    assert calls[2:] == ["openpe_b.yaml"]


def test_a_file_that_is_gone_is_not_remembered_as_parsed(tmp_path: Path) -> None:
    write(tmp_path, a=UNDERLAY_FILE, b=RED_FILE)
    parsed: ParsedFiles = {}
    found = read_directory(tmp_path, "node", LastGood(), parsed=parsed)
    (tmp_path / "openpe_b.yaml").unlink()
    read_directory(tmp_path, "node", found.last_good, parsed=parsed)
    assert [path.name for path in parsed] == ["openpe_a.yaml"]


def test_a_file_with_a_reference_to_a_password_is_parsed_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WITH_PASSWORD != UNDERLAY_FILE
    write(tmp_path, a=WITH_PASSWORD)
    calls = counted(monkeypatch)
    parsed: ParsedFiles = {}
    for _ in range(2):
        (problem,) = read_directory(tmp_path, "node", LastGood(), parsed=parsed).problems
        assert "does not exist" in problem.message
    assert len(calls) == 2


def test_a_password_that_others_can_read_is_named_after_the_mode_alone_has_changed(tmp_path: Path) -> None:
    write(tmp_path, a=INLINE_PASSWORD)
    parsed: ParsedFiles = {}
    warnings = []
    for mode in (0o600, 0o644, 0o600):
        (tmp_path / "openpe_a.yaml").chmod(mode)
        warnings.append(len(read_directory(tmp_path, "node", LastGood(), parsed=parsed).problems))
    assert warnings == [0, 1, 0]


#: What may happen to a directory between two readings: a file's text or end, a mode, a password's text or end.
_EVENTS = st.one_of(
    st.tuples(
        st.just("write"),
        st.sampled_from("ab"),
        st.sampled_from((UNDERLAY_FILE, RED_FILE, BLUE, WITH_PASSWORD, INLINE_PASSWORD, "l3vnis: [", "", None)),
    ),
    st.tuples(st.just("mode"), st.sampled_from("ab"), st.sampled_from((0o600, 0o644))),
    st.tuples(st.just("password"), st.just("tor"), st.sampled_from(("one", "two", "", None))),
)


def happen(directory: Path, what: str, name: str, value: str | int | None) -> None:
    secret = what == "password"
    path = directory / "secrets" / name if secret else directory / f"openpe_{name}.yaml"
    if isinstance(value, int):
        if path.exists():
            path.chmod(value)
    elif value is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(value)
        path.chmod(0o600)


@given(st.lists(st.tuples(st.lists(_EVENTS, max_size=3), st.sampled_from(("node", "other"))), max_size=6))
@settings(deadline=None)
def test_what_was_parsed_before_makes_no_difference(
    history: list[tuple[list[tuple[str, str, str | int | None]], str]],
) -> None:
    parsed: ParsedFiles = {}
    previous = LastGood()
    with TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "secrets").mkdir()
        for events, node_name in history:
            for event in events:
                happen(directory, *event)
            found = read_directory(directory, node_name, previous, parsed=parsed)
            assert found == read_directory(directory, node_name, previous)
            previous = found.last_good
