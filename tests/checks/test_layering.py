"""Imports point one way: config <- actors <- what composes them; the runtime knows neither.

The picture is in docs/architecture.md; this is what keeps it true.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .sources import CODE, ROOT, Module, modules

OURS = frozenset({"config", "actors", "supervisor"})
#: Folders of actors/ that are no actor but what several of them share.
SHARED = frozenset({"lib"})
#: The modules of supervisor/ that put the parts together; all others are the runtime.
COMPOSING = frozenset({"wiring", "control", "cli", "main", "__main__", "operations"})
#: Runs before anything is installed.
STANDARD_LIBRARY_ONLY = ("tests/harness/guestvm/", "tests/harness/demo/", "tests/harness/uml/")
#: Newer than the oldest trio that we support (Debian 13's 0.29).
TOO_NEW = frozenset({"trio.as_safe_channel"})


def layer(name: str) -> str:
    """Return the layer that a dotted name belongs to: config, actors, runtime, composing or other."""
    top, _, rest = name.partition(".")
    if top == "supervisor":
        return "composing" if rest.split(".")[0] in COMPOSING else "runtime"
    return top if top in OURS else "other"


def actor_of(name: str) -> str | None:
    """Return the actor package that a name lies in; None for what all actors share."""
    parts = name.split(".")
    if parts[0] != "actors" or len(parts) < 2 or parts[1] in SHARED:
        return None
    return parts[1] if (ROOT / "actors" / parts[1]).is_dir() else None


def breaks(module: Module, imported: str) -> str | None:
    """Say what is wrong with an import, if anything."""
    allowed = {
        "config": {"config"},
        "runtime": {"runtime"},
        "actors": {"actors", "config", "runtime"},
        "composing": {"composing", "actors", "config", "runtime"},
    }
    here, there = layer(module.name), layer(imported)
    if here in allowed and there != "other" and there not in allowed[here]:
        return f"{here} must not import {there}"
    if here == "actors" and there == "actors":
        mine, theirs = actor_of(module.name), actor_of(imported)
        if theirs is not None and mine != theirs:
            return f"actor {mine or 'shared code'} must not import actor {theirs}: share data through config"
    return None


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module.path}:{line}: {imported}: {why}"
        for module in modules("supervisor", "actors", "config")
        for line, imported in module.imports()
        if (why := breaks(module, imported))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("config.models", "actors.frr.render.render"),
        ("config.models", "supervisor.logs.logger"),
        ("supervisor.runtime.tree", "config.desired.DesiredState"),
        ("supervisor.runtime.tree", "supervisor.wiring"),
        ("actors.frr.actor", "actors.netlink.planning.wanted"),
        ("actors.frr.actor", "supervisor.control.Server"),
        ("actors.lib.frr.vtysh", "actors.frr.render.render"),
        ("actors.lib.kube.client", "actors.frr.render.render"),
    ],
)
def test_the_layering_check_sees_a_wrong_import(importer: str, imported: str) -> None:
    [module] = [found for found in modules("supervisor") if found.name == "supervisor.runtime.tree"]
    assert breaks(Module(module.path, importer, module.text, module.tree), imported)


def test_config_does_no_input_output_but_reading_files() -> None:
    forbidden = {"socket", "subprocess", "trio", "pyroute2", "threading", "asyncio"}
    wrong = [
        f"{module.path}:{line}: {imported}"
        for module in modules("config")
        for line, imported in module.imports()
        if imported.split(".")[0] in forbidden
    ]
    assert not wrong, "\n".join(wrong)


def test_what_runs_before_the_set_up_needs_only_the_standard_library() -> None:
    known = sys.stdlib_module_names | {"guestvm", "demo", "packaging"}
    wrong = [
        f"{module.path}:{line}: {imported}"
        for module in modules("packaging")
        if module.path.startswith(STANDARD_LIBRARY_ONLY)
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
    strangers = [
        str(folder.relative_to(ROOT))
        for layer_name in ("config", "actors", "supervisor")
        for folder in (ROOT / "tests" / layer_name).rglob("*/")
        if any(folder.glob("test_*.py")) and not _mirrored(folder)
    ]
    assert not strangers, strangers


def _mirrored(folder: Path) -> bool:
    code = ROOT / folder.relative_to(ROOT / "tests")
    return code.is_dir() or code.with_suffix(".py").is_file()
