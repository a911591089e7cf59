"""``make release``: what stops it, that its quick parts are whole and the same each time, and that it tags nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.programs import load

ROOT = Path(__file__).resolve().parents[2]
#: What the quick parts read.
COPIED = ("supervisor", "actors", "config", "packaging", "debian", "pyproject.toml", "README.md")
QUICK = "source,chart,bill"


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return load("release/make_release.py")


def git(root: Path, *words: str) -> str:
    author = {f"GIT_{who}_{what}": "tests" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **author, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that can be released."""
    root = tmp_path_factory.mktemp("original") / "checkout"
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, root / name)
    version = re.findall(r'"(.*)"', (root / "supervisor/version.py").read_text())[-1]
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version} (2026-11-22)\n")
    (root / ".gitignore").write_text("__pycache__/\nbuild/\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "all")
    return root


@pytest.fixture
def checkout(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "checkout", symlinks=True)
    return tmp_path / "checkout"


def make(release: ModuleType, root: Path, *options: str) -> int:
    code: int = release.main(["--root", str(root), "--parts", QUICK, *options])
    return code


def test_the_quick_parts_are_whole(release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(release, checkout) == 0
    output = checkout / "build/release"
    version = release.Release(checkout, output).version
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=output, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert len((output / "SHA256SUMS").read_text().splitlines()) == 3
    with tarfile.open(output / f"openperouter-{version}.tar.gz") as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert set(git(checkout, "ls-files").splitlines()) <= files
    with tarfile.open(output / f"openperouter-chart-{version}.tgz") as archive:
        names = archive.getnames()
        assert {"openperouter/Chart.yaml", "openperouter/values.yaml"} <= set(names)
        assert not [one for one in archive.getmembers() if not one.isfile()]
    assert [name for name in names if name.startswith("openperouter/files/crds/")]
    bill = json.loads((output / f"openperouter-{version}.python.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert "pkg:pypi/trio@0.29.0" in [one["purl"] for one in bill["components"]]
    assert bill["dependencies"][0]["dependsOn"] == [one["bom-ref"] for one in bill["components"]]
    commit = git(checkout, "rev-parse", "HEAD").strip()
    printed = capsys.readouterr().out
    assert f"git tag --sign --message 'openperouter {version}' v{version} {commit}" in printed
    # It only prints the command.
    assert git(checkout, "tag") == ""
    assert git(checkout, "status", "--porcelain") == ""


def test_the_same_commit_has_the_same_bytes(release: ModuleType, checkout: Path, tmp_path: Path) -> None:
    assert make(release, checkout) == 0
    again = tmp_path / "elsewhere"
    git(tmp_path, "clone", "--quiet", str(checkout), str(again))
    for path in again.rglob("*.yaml"):
        os.utime(path, (1, 1))
    assert make(release, again) == 0
    first, second = (root / "build/release/SHA256SUMS" for root in (checkout, again))
    assert first.read_text() == second.read_text()


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (("CHANGELOG.md", r"## \S+", "## Unreleased"), "CHANGELOG.md has no section"),
        (("debian/changelog", r"unstable;", "UNRELEASED;"), "debian/changelog begins with"),
        (("debian/changelog", r"\(.*?\)", "(99.0)"), "debian/changelog begins with"),
        (("packaging/chart/Chart.yaml", r"(?m)^appVersion: .*", "appVersion: 99.0.0"), "Chart.yaml has the versions"),
    ],
)
def test_versions_that_differ_stop_it_unless_it_is_a_draft(
    release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str], edit: tuple[str, str, str], complaint: str
) -> None:
    file, old, new = edit
    path = checkout / file
    path.write_text(re.sub(old, new, path.read_text(), count=1))
    git(checkout, "commit", "--quiet", "--all", "--message", "other")
    assert make(release, checkout) == 1
    assert complaint in capsys.readouterr().err
    assert not (checkout / "build/release").exists()
    assert make(release, checkout, "--draft", "--parts", "source") == 0
    assert "git tag" not in capsys.readouterr().out


def test_changes_and_a_tag_stop_it(release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "new").touch()
    assert make(release, checkout, "--draft") == 1
    assert "changes that are not committed: new" in capsys.readouterr().err
    (checkout / "new").unlink()
    version = release.Release(checkout, checkout).version
    git(checkout, "tag", f"v{version}")
    assert make(release, checkout) == 1
    assert f"the tag v{version} exists already" in capsys.readouterr().err


def test_a_dependency_without_a_version_stops_it(
    release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkout / "packaging/requirements/debian13.txt"
    path.write_text(path.read_text().replace("trio==", "oirt=="))
    git(checkout, "commit", "--quiet", "--all", "--message", "other")
    assert make(release, checkout) == 1
    assert "has no version of trio" in capsys.readouterr().err


def test_without_buildah_only_a_draft_goes_without_an_image_and_says_so(
    release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release.shutil, "which", lambda _name: None)
    assert make(release, checkout, "--parts", "bill,image") == 1
    assert "buildah is not installed, and the image needs it" in capsys.readouterr().err
    assert not (checkout / "build/release").exists()
    assert make(release, checkout, "--draft", "--parts", "bill,image") == 0
    assert "no image: buildah is not installed" in capsys.readouterr().out


def test_a_part_that_fails_is_an_error_with_its_output(
    release: ModuleType, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "packaging/deb/build.py").write_text("raise SystemExit('no tree here')\n")
    git(checkout, "commit", "--quiet", "--all", "--message", "other")
    assert make(release, checkout, "--parts", "deb") == 1
    assert "no tree here" in capsys.readouterr().err
