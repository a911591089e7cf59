"""``journalctl -x`` explains each warning and error: their log calls name an event of ``message_ids.py``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from supervisor.logs import message_ids
from supervisor.logs.logger import journal_name
from tests.actors.message_catalog import ENTRIES

from .sources import Module, modules

LEVELS = frozenset({"warning", "error", "bug"})
#: Names of loggers and of limiters, and their methods for warnings and errors.
LOGGERS = {"log": LEVELS, "_log": LEVELS, "repeats": {"failing"}, "_limiter": {"failing"}}
#: Functions that log without an event, and why.
WITHOUT = {"supervisor/logs/throttle.py:failing": "its callers name the event, and are checked for it"}


def functions(node: ast.AST, path: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield each innermost function's name with each node in it."""
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else path
        yield inner, child
        yield from functions(child, inner)


def is_complaint(node: ast.AST) -> bool:
    """Whether a node is a logger's method for warnings and errors, called or not."""
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return node.attr in LOGGERS.get(name, ())


def unexplained(module: Module) -> Iterator[tuple[str, int]]:
    """Yield function and line of each warning or error in a module that names no event.

    Where the fields or the method are put together before the call, the function has to mention the event somewhere.
    """
    nodes = list(functions(module.tree))
    mentions = {name for name, node in nodes if "message_id" in (getattr(node, "arg", ""), getattr(node, "value", ""))}
    calls = {id(node.func): node for _, node in nodes if isinstance(node, ast.Call)}
    for name, node in nodes:
        if not is_complaint(node):
            continue
        call = calls.get(id(node))
        given = [keyword.arg for keyword in call.keywords] if call is not None else [None]
        if "message_id" not in given and not (None in given and name in mentions):
            yield name, getattr(node, "lineno", 0)


def test_each_warning_and_error_names_its_event() -> None:
    found = [
        f"{module.path}:{line} in {name}"
        for module in modules("actors", "supervisor")
        for name, line in unexplained(module)
        if f"{module.path}:{name}" not in WITHOUT
    ]
    assert not found, "\n".join(found)


def test_each_excuse_is_still_needed() -> None:
    found = {f"{module.path}:{name}" for module in modules("actors", "supervisor") for name, _ in unexplained(module)}
    assert found >= set(WITHOUT)


def test_what_an_explanation_quotes_is_a_field_of_each_line_that_it_explains() -> None:
    wrong = []
    for module in modules("actors", "supervisor"):
        for call in (node for node in ast.walk(module.tree) if isinstance(node, ast.Call)):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            event = given.get("message_id")
            if None in given or not isinstance(event, ast.Attribute) or ast.unparse(event.value) != "message_ids":
                continue
            quoted = set(re.findall(r"@([A-Z_]+)@", ENTRIES[getattr(message_ids, event.attr)]))
            missing = quoted - {journal_name(str(key)) for key in given}
            wrong += [f"{module.path}:{call.lineno}: {event.attr} quotes {name}" for name in sorted(missing)]
    assert not wrong, "\n".join(wrong)
