"""The directory of files: what stays in force when something is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.desired import Secret
from config.outcomes import NodeIdentity
from config.problems import Kind
from config.resolve.resolution import resolve
from config.resources import Resource, UnknownContent, Unusable
from config.sources import static_files
from config.sources.static_files import StaticRead, read_directory
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
