"""A public class name stands for one thing: a reader who meets ``Plan`` need not ask which one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable

from .sources import CODE, Module, modules


def shared_names(searched: Iterable[Module]) -> dict[str, list[str]]:
    """Return the public class names that are defined more than once, each with its places."""
    places = defaultdict[str, list[str]](list)
    for module in searched:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module.path}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_classes_have_the_same_name() -> None:
    found = shared_names(modules(*CODE))
    assert not found, "\n".join(f"{name}: {', '.join(places)}" for name, places in found.items())


def test_a_name_of_two_classes_is_found_and_a_private_one_is_not() -> None:
    text = "class Plan: pass\nclass _Node: pass\n"
    one, other = (Module(f"{name}.py", name, text) for name in ("a", "b"))
    assert shared_names([one, other]) == {"Plan": ["a.py:1", "b.py:1"]}
