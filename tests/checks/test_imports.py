"""Who may import whom. The contracts are in pyproject.toml; the picture is in docs/architecture.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .sources import CODE, ROOT, modules

#: Run before anything is installed.
STANDARD_LIBRARY_ONLY = ("tests/harness/guestvm", "tests/harness/demo", "tests/harness/uml")
#: Newer than the oldest trio that we support (Debian 13's 0.29).
TOO_NEW = frozenset({"trio.as_safe_channel"})


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts on a tree; which of them are broken is in the output."""
    program = Path(sys.executable).with_name("lint-imports")
    command = [str(program), "--no-cache", "--no-logo", "--config", str(tree / "pyproject.toml")]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=100)


def test_the_contracts_are_kept() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the code that a test may break."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ("config", "actors", "supervisor"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        ("config/settings.py", "actors.frr.render.render", "Layers"),
        ("config/settings.py", "supervisor.logs.logger", "config stands alone"),
        ("supervisor/runtime/tree.py", "config.desired", "The runtime knows nothing of routers"),
        ("supervisor/runtime/tree.py", "supervisor.wiring", "The runtime knows nothing of routers"),
        ("actors/frr/actor.py", "supervisor.control", "Layers"),
        ("supervisor/operations/exit_codes.py", "supervisor.main", "Layers"),
        ("actors/frr/actor.py", "actors.netlink.planning.wanted", "Actors share nothing but actors.lib"),
        ("actors/lib/frr/vtysh.py", "actors.frr.render.render", "Actors share nothing but actors.lib"),
        ("supervisor/runtime/channel.py", "supervisor.runtime.graph", "No cycles between modules and packages"),
    ],
)
def test_a_wrong_import_breaks_its_contract(tree: Path, importer: str, imported: str, contract: str) -> None:
    assert (tree / f"{imported.replace('.', '/')}.py").is_file()
    with (tree / importer).open("a") as file:
        file.write(f"\nimport {imported}\n")
    done = lint_imports(tree)
    assert done.returncode == 1, done.stderr
    assert f"{contract} BROKEN" in done.stdout


def test_a_new_actor_has_to_be_listed(tree: Path) -> None:
    (tree / "actors/unlisted").mkdir()
    (tree / "actors/unlisted/__init__.py").touch()
    assert "actors.unlisted" in lint_imports(tree).stdout


def test_config_does_no_input_output_but_reading_files() -> None:
    forbidden = {"socket", "subprocess", "trio", "pyroute2", "threading", "asyncio"}
    # Validators are made when they are first used, in whatever thread that is: a lock, and nothing else of threads.
    allowed = {("config/models/base.py", "threading")}
    wrong = [
        f"{module.path}:{line}: {imported}"
        for module in modules("config")
        for line, imported in module.imports()
        if imported.split(".")[0] in forbidden and (str(module.path), imported) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_what_runs_before_anything_is_installed_needs_only_the_standard_library() -> None:
    known = sys.stdlib_module_names | {"guestvm", "demo", "tests"}
    wrong = [
        f"{module.path}:{line}: {imported}"
        for module in modules(*STANDARD_LIBRARY_ONLY)
        for line, imported in module.imports()
        if imported.split(".")[0] not in known
    ]
    assert not wrong, "\n".join(wrong)


def test_no_library_feature_is_newer_than_debian_13() -> None:
    wrong = [
        f"{module.path}:{line}: {imported}"
        for module in modules(*CODE)
        for line, imported in module.imports()
        if imported in TOO_NEW
    ]
    wrong += [module.path for module in modules(*CODE) for name in TOO_NEW if name in module.text]
    assert not wrong, "\n".join(wrong)


def test_tests_mirror_the_code() -> None:
    """Every folder with tests of code is named after a folder of code."""
    unmatched = [
        str(folder.relative_to(ROOT))
        for layer_name in ("config", "actors", "supervisor")
        for folder in (ROOT / "tests" / layer_name).rglob("*/")
        if any(folder.glob("test_*.py")) and not _mirrored(folder)
    ]
    assert not unmatched, unmatched


def _mirrored(folder: Path) -> bool:
    code = ROOT / folder.relative_to(ROOT / "tests")
    return code.is_dir() or code.with_suffix(".py").is_file()
