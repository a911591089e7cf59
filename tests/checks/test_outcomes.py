"""Every test asserts an outcome: one that only runs its subject passes whatever that does.

A test asserts with ``assert``, ``pytest.raises``, ``pytest.warns`` or ``pytest.fail``, or with a function that does and
that it calls or hands over by its name: one of its own module, or one that this imports from another of the tests.
Methods and fixtures do not count: what they assert is mostly that a test can begin.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from types import MappingProxyType

import pytest

from .sources import TESTS, Module, modules

Function = ast.FunctionDef | ast.AsyncFunctionDef
_OF_PYTEST = frozenset({"pytest.raises", "pytest.warns", "pytest.fail", "pytest.RaisesGroup"})
_CLAUSES = "the clauses of the contract, each of which is checked here as a test is"
#: Tests whose outcome is asserted where this check does not look, by ``path::name``, and where that is.
ASSERTED_ELSEWHERE = {
    "tests/actors/lib/kube/test_api_server_contract.py::test_the_fake_server_keeps_the_contract": _CLAUSES,
    "tests/actors/netlink/test_kernel_contract.py::test_the_fake_kernel_keeps_the_contract": _CLAUSES,
    "tests/kernel/test_kernel_contract.py::test_the_kernel_keeps_the_contract": _CLAUSES,
    "tests/cluster/test_crds_agree.py::test_specs_are_judged_alike": "Judge.both asserts that both verdicts are equal",
}


def asserts_itself(function: Function) -> bool:
    """Whether a function contains an assertion."""
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in _OF_PYTEST)
        or (isinstance(node, ast.Raise) and node.exc is not None and "AssertionError" in ast.unparse(node.exc))
        for node in ast.walk(function)
    )


def is_fixture(function: Function) -> bool:
    """Whether pytest calls a function before a test."""
    return any("fixture" in ast.unparse(decorator) for decorator in function.decorator_list)


def names_in(tree: ast.AST) -> set[str]:
    """Return the plain names in a piece of code; ``bench.until`` contributes ``bench``."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@cache
def functions_of(module: Module) -> MappingProxyType[str, Function]:
    """Return a module's functions by name: those inside others included, fixtures and methods not."""
    methods = {one for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef) for one in node.body}
    return MappingProxyType({one.name: one for one in module.functions() if one not in methods and not is_fixture(one)})


@cache
def imported_by(module: Module) -> MappingProxyType[str, str]:
    """Return the full dotted names of all that a module imports, by their last parts."""
    return MappingProxyType({name.rpartition(".")[2]: name for _, name in module.imports()})


@cache
def modules_of_tests() -> MappingProxyType[str, Module]:
    """Return the modules of the tests by each name under which they are imported."""
    every = {module.name: module for module in modules(*TESTS)}
    return MappingProxyType(every | {name.removeprefix("tests.harness."): one for name, one in every.items()})


def used_by(module: Module, function: Function) -> Iterator[tuple[Module, Function]]:
    """Yield the functions of the tests that a function of a module names, each with its module."""
    for name in names_in(function):
        home, _, _ = imported_by(module).get(name, "").rpartition(".")
        owner = modules_of_tests().get(home, module)
        if name in functions_of(owner):
            yield owner, functions_of(owner)[name]


def asserts(module: Module, function: Function) -> bool:
    """Whether a function of a module asserts, itself or by a function that it uses."""
    seen = [(module, function)]
    for one in seen:
        if asserts_itself(one[1]):
            return True
        seen += [other for other in used_by(*one) if other not in seen]
    return False


def clauses_of(module: Module) -> set[str]:
    """Return the names of the functions that a module lists in its ``CONTRACT``."""
    lists = (node for node in module.tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    return {
        name for one in lists if "CONTRACT" in names_in(one) for name in names_in(one) & functions_of(module).keys()
    }


def silent(module: Module) -> dict[str, str]:
    """Return what asserts nothing of a module's tests and of the clauses of its contract: by name, with its place."""
    return {
        f"{module.path}::{one.name}": f"{module.path}:{one.lineno}: {one.name}"
        for one in module.functions()
        if one.name.startswith("test_") or one.name in clauses_of(module)
        if not asserts(module, one)
    }


def test_each_test_asserts_an_outcome() -> None:
    found = {name: place for module in modules(*TESTS) for name, place in silent(module).items()}
    hits = [place for name, place in found.items() if name not in ASSERTED_ELSEWHERE]
    assert not hits, "\n".join(["without an assertion of an outcome:", *hits])
    assert found.keys() >= ASSERTED_ELSEWHERE.keys()


@pytest.mark.parametrize(
    ("body", "is_silent"),
    [
        ("run()", True),
        ("bench.check()", True),
        ("with trio.fail_after(1): await run()", True),
        ("assert run()", False),
        ("with pytest.raises(OSError): run()", False),
        ("check(run())", False),
        ("trio.run(by_another)", False),
        ("with all_well(): run()", False),
        ("shown(run())", True),
    ],
)
def test_a_test_without_an_assertion_is_found(body: str, is_silent: bool) -> None:
    text = f"""
def check(value): assert value
def by_another(): check(1)
def shown(value): print(value)
@contextmanager
def all_well():
    yield
    raise AssertionError("not well")
@pytest.fixture
def bench(): assert 1
async def test_x(bench):
    {body}
"""
    assert bool(silent(Module("tests/test_x.py", "tests.test_x", text))) == is_silent
