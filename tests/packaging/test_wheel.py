"""The wheel's files: the whole program in one package, whose entry point runs it without a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from supervisor.version import VERSION

pytest.importorskip("setuptools", reason="no setuptools: a virtual environment of Python 3.12 and newer has none")

ROOT = Path(__file__).resolve().parents[2]
PRIVATE = ("supervisor", "actors", "config")
#: What "openperouter manifests" prints and writes.
MANIFESTS = ("crds", "kubernetes", "monitoring", "kustomize", "chart")
COPIED = (*PRIVATE, "packaging/wheel", "packaging/examples", *(f"packaging/{name}" for name in MANIFESTS))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lay out what goes into the wheel; making an archive of it needs more of setuptools than Debian 12 has."""
    source = tmp_path_factory.mktemp("source")
    for name in COPIED:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("library")
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def run(library: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the entry point as the program that pip makes does, outside of the checkout."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["openperouter"].partition(":")
    program = f"import sys; from {module} import {function}; sys.exit({function}())"
    environment = {**os.environ, "PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(
        command, cwd=library.parent, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_every_file_of_the_program_is_in_it(library: Path) -> None:
    ours = {path.relative_to(ROOT) for name in PRIVATE for path in (ROOT / name).rglob("*") if path.is_file()}
    wanted = {path for path in ours if "__pycache__" not in path.parts}
    assert len(wanted) > 100
    package = library / "openperouter"
    found = {path.relative_to(package) for path in package.rglob("*") if path.is_file()}
    manifests = {path for path in found if path.parts[0] in MANIFESTS}
    assert found - manifests == wanted | {Path("__init__.py")}
    assert {path.parts[0] for path in manifests} == set(MANIFESTS)
    assert {path for path in manifests if path.suffix == ".py"} == set()
    assert [path.name for path in library.iterdir()] == ["openperouter"]


def test_the_entry_point_runs_the_program(library: Path) -> None:
    done = run(library, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"openperouter {VERSION}\n", "")


def test_it_has_the_manifests_of_the_cluster(library: Path, tmp_path: Path) -> None:
    checkout = [sys.executable, "-m", "supervisor", "manifests"]
    wanted = subprocess.run(checkout, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    done = run(library, "manifests")
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")
    done = run(library, "manifests", "--write", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new/chart/files/crds").is_dir()


def test_it_renders_from_its_own_templates(library: Path, tmp_path: Path) -> None:
    places = {
        "nodeConfigFile": ROOT / "packaging/examples/node-config.yaml",
        "configsDir": ROOT / "packaging/examples/configs",
        "stateDir": tmp_path,
    }
    settings = tmp_path / "openperouter.yaml"
    settings.write_text("".join(f"{key}: {path}\n" for key, path in places.items()))
    done = run(library, "show", "--settings", str(settings), "frr", "--intended")
    assert done.returncode == 0, done.stderr
    assert "router bgp 64514 vrf red" in done.stdout
