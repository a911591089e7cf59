"""How large things may get. The numbers only ever go down: who makes a budget tighter lowers it here."""

from __future__ import annotations

import ast
from statistics import median

import pytest

from .sources import CODE, TESTS, Module, modules

LONGEST_MODULE = 600
MEDIAN_MODULE = 150
#: One screen.
LONGEST_FUNCTION = 60
MEDIAN_FUNCTION = 10
#: Tables in the shape of a function: long because of how much they list, one paragraph an entry.
TABLES = {"supervisor/wiring.py:children": 108}
#: Sleeping is waiting for nothing in particular; only harnesses that look at another machine may poll.
MAY_SLEEP = ("tests/harness/", "tests/guest/", "tests/frr/", "tests/kernel/", "tests/bench/")
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


def test_every_function_fits_on_a_screen() -> None:
    long = [
        f"{module.path}:{function.lineno}: {function.name}: {length(function)}"
        for module in modules(*CODE)
        for function in module.functions()
        if length(function) > TABLES.get(f"{module.path}:{function.name}", LONGEST_FUNCTION)
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
