"""How large things may get. The numbers only ever go down."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from statistics import median

import pytest

from .sources import CODE, TESTS, Module, modules

LONGEST_MODULE = 600
MEDIAN_MODULE = 150
#: One screen.
LONGEST_FUNCTION = 60
MEDIAN_FUNCTION = 10
#: Modules in a folder, without its ``__init__.py``.
LARGEST_FOLDER = 12
#: A module shorter than this with one importer belongs into that importer.
SHORT_MODULE = 60
#: Short modules with one importer that stay, and why.
STAY_SHORT = {
    "supervisor/__main__.py": "python -m supervisor",
    "actors/lib/kube/auth_provider.py": "the program of a process of its own",
}
#: One verb of the command line per file, however short.
VERBS = "supervisor/cli/verbs/"
#: Sleeping is waiting for nothing in particular; only harnesses that look at another machine may poll. Dumps that were
#: interrupted are repeated with pauses, in a thread of their own.
MAY_SLEEP = (
    "actors/netlink/wire/socket.py",
    "tests/harness/", "tests/guest/", "tests/frr/", "tests/kernel/", "tests/bench/",
)  # fmt: skip
#: Names that say nothing about what is inside.
MEANINGLESS = frozenset({"utils", "util", "helpers", "helper", "misc", "common"})


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return a function's lines of code: without its docstring, which may explain as much as it needs."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def called_name(node: ast.Call) -> str:
    """Return a call's target as text (``time.sleep``)."""
    return ast.unparse(node.func)


def test_no_module_is_longer_than_the_budget() -> None:
    long = [f"{module.path}: {module.lines}" for module in modules(*CODE, *TESTS) if module.lines > LONGEST_MODULE]
    assert not long, long


def test_the_median_module_fits_on_three_screens() -> None:
    assert median(module.lines for module in modules(*CODE)) <= MEDIAN_MODULE


@cache
def importers() -> dict[str, set[str]]:
    """Return the paths of the modules that import each module, as a whole or something of it, by its dotted name."""
    found = defaultdict[str, set[str]](set)
    for module in modules(*CODE):
        for _, imported in module.imports():
            for name in (imported, imported.rpartition(".")[0]):
                found[name] |= {module.path}
    return found


def is_part_of_its_importer(module: Module) -> bool:
    """Whether a module is so short, and has so few importers, that it belongs into the one that it has."""
    return module.lines < SHORT_MODULE and len(importers()[module.name] - {module.path}) <= 1


def test_a_short_module_has_more_than_one_importer() -> None:
    short = [
        f"{module.path}: {module.lines} lines, imported by {', '.join(importers()[module.name])}"
        for module in modules("config", "actors", "supervisor")
        if not module.path.endswith("__init__.py") and is_part_of_its_importer(module)
        if module.path not in STAY_SHORT and not module.path.startswith(VERBS)
    ]
    assert not short, "\n".join(short)


def test_each_short_module_that_stays_still_needs_its_excuse() -> None:
    assert {module.path for module in modules(*CODE) if is_part_of_its_importer(module)} >= set(STAY_SHORT)


def test_no_folder_holds_too_many_modules() -> None:
    folders = Counter(module.path.rpartition("/")[0] for module in modules(*CODE) if "__init__" not in module.path)
    large = {folder: count for folder, count in folders.items() if count > LARGEST_FOLDER}
    assert not large, large


def test_every_function_fits_on_a_screen() -> None:
    long = [
        f"{module.path}:{function.lineno}: {function.name}: {length(function)}"
        for module in modules(*CODE)
        for function in module.functions()
        if length(function) > LONGEST_FUNCTION
    ]
    assert not long, long


def test_the_median_function_is_short() -> None:
    assert median(length(function) for module in modules(*CODE) for function in module.functions()) <= MEDIAN_FUNCTION


def test_every_module_opens_with_why_it_exists() -> None:
    silent = [module.path for module in modules(*CODE, *TESTS) if module.text.strip() and not _docstring(module)]
    assert not silent, silent


def test_no_exception_is_caught_without_a_word() -> None:
    silent = [
        f"{module.path}:{node.lineno}"
        for module in modules(*CODE, *TESTS)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or all(isinstance(s, ast.Pass) for s in node.body))
    ]
    assert not silent, silent


def test_nothing_sleeps_to_synchronise() -> None:
    sleeping = [
        f"{module.path}:{node.lineno}"
        for module in modules(*CODE, *TESTS)
        if not module.path.startswith(MAY_SLEEP)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and called_name(node) == "time.sleep"
    ]
    assert not sleeping, sleeping


def test_names_say_what_is_inside() -> None:
    vague = [module.path for module in modules(*CODE, *TESTS) if module.name.rpartition(".")[2] in MEANINGLESS]
    assert not vague, vague


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X"])
def test_nothing_is_left_for_later(word: str) -> None:
    left = [
        f"{module.path}:{number}"
        for module in modules(*CODE, *TESTS)
        for number, line in enumerate(module.text.splitlines(), 1)
        if word in line
    ]
    assert not left, left


def _docstring(module: Module) -> str | None:
    return ast.get_docstring(module.tree)
