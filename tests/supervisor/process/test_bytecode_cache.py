"""Code that is text: what is found is not compiled, and is what the builtins would have made of it."""

from __future__ import annotations

import builtins
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from supervisor.process import bytecode_cache
from supervisor.process.bytecode_cache import Text, Texts, encode, encode_code, load, used

ROOT = Path(__file__).resolve().parents[3]
MODULE = """
from collections import namedtuple
from dataclasses import dataclass, field

@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: list[int] = field(default_factory=list)

Pair = namedtuple("Pair", "a b")
"""


def imported(texts: Texts) -> ModuleType:
    """Execute the module as an import does."""
    module = ModuleType("points")
    sys.modules[module.__name__] = module
    try:
        with used(texts):
            exec(compile(MODULE, "points.py", "exec"), module.__dict__)  # noqa: S102 - ours
    finally:
        del sys.modules[module.__name__]
    return module


def recorded(texts: Texts) -> dict[Text, bytes]:
    return {text: encode_code(code) for text, code in texts.compiled.items()}


def test_what_was_recorded_is_not_compiled_again() -> None:
    first = Texts({})
    imported(first)
    assert first.compiled
    again = Texts(recorded(first))
    module = imported(again)
    assert not again.compiled
    point = module.Point(1)
    assert (point.x, point.y, repr(point)) == (1, [], "Point(x=1, y=[])")
    assert point == module.Point(1)
    with pytest.raises(AttributeError):
        point.x = 2
    assert module.Pair(a=1, b=2) == (1, 2)


def test_another_text_is_compiled() -> None:
    first = Texts({})
    imported(first)
    [first_text, *_] = first.compiled
    found = recorded(first)
    del found[first_text]
    again = Texts(found)
    imported(again)
    assert list(again.compiled) == [first_text]


def test_the_builtins_are_back_after_a_failure() -> None:
    before = (builtins.compile, builtins.exec, builtins.eval)
    with pytest.raises(ZeroDivisionError), used(Texts({})):
        exec("1 / 0")  # noqa: S102 - ours
    assert (builtins.compile, builtins.exec, builtins.eval) == before


def annotated_by(code: CodeType, scope: dict[str, Any]) -> Any:
    exec(code, scope)  # noqa: S102 - ours
    return scope["g"].__annotations__


def compiles_as_this_module_says(texts: Texts) -> None:
    """This module's annotations are not evaluated, and so are those of what it compiles."""
    scope: dict[str, Any] = {}
    with used(texts):
        exec("def f(x: missing): pass", scope)  # noqa: S102 - ours
        evaluated = compile("def g(x: missing): pass", "<string>", "exec", dont_inherit=True)
    assert scope["f"].__annotations__ == {"x": "missing"}
    with pytest.raises(NameError):
        annotated_by(evaluated, scope)


def test_the_caller_s_future_statements_apply() -> None:
    first = Texts({})
    compiles_as_this_module_says(first)
    again = Texts(recorded(first))
    compiles_as_this_module_says(again)
    assert len(first.compiled) == 2
    assert not again.compiled


def test_scopes_are_the_caller_s() -> None:
    local = 20
    with used(Texts({})):
        assert eval(" \tlocal + 1") == 21  # noqa: S307 - ours
        assert eval("local + other", {"local": 1}, {"other": 2}) == 3  # noqa: S307 - ours
        assert eval(compile("local", "<x>", "eval")) == 20  # noqa: S307 - ours
        assert eval("ROOT") is ROOT  # noqa: S307 - ours
        assert eval("local", None, {"local": 3}) == 3  # noqa: S307 - ours
        assert eval("(local, ROOT)", None, None) == (20, ROOT)  # noqa: S307 - ours
    assert local == 20


def test_syntax_trees_flags_and_optimization_are_the_builtin_s() -> None:
    import ast

    texts = Texts({})
    with used(texts):
        tree = compile("1 + 1", "<x>", "eval", ast.PyCF_ONLY_AST)
        assert isinstance(tree, ast.Expression)
        assert eval(compile(tree, "<x>", "eval")) == 2  # noqa: S307 - ours
        assert isinstance(compile("assert 0", "<x>", "exec", optimize=2), CodeType)
        with pytest.raises(SyntaxError):
            compile("1 +", "<x>", "eval")
    assert not texts.compiled


@pytest.mark.parametrize("content", [None, b"", b"nonsense", marshal.dumps(7), marshal.dumps(((b"3.9", 0), {}))])
def test_a_file_of_no_use_is_as_good_as_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert load(path) == {}


def test_a_file_holds_what_was_put_into_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(encode({("b", 1): b"2", ("a", 1): b"1"}))
    assert load(path) == {("a", 1): b"1", ("b", 1): b"2"}


def test_a_checkout_has_no_files() -> None:
    """They would be of some other state of it."""
    assert not bytecode_cache.FILE.exists()


def test_a_start_with_the_package_s_files_compiles_next_to_nothing(tmp_path: Path) -> None:
    """attrs writes hashes that differ from process to process into its methods, which is all that is left."""
    for package in ("actors", "config", "supervisor"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    generate = [sys.executable, str(ROOT / "packaging/bytecode/generate.py"), str(tmp_path)]
    # As when Debian's package is built: files that are younger than its changelog get that time.
    epoch = 1_700_000_000
    environment = {**os.environ, "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(generate, cwd=ROOT, env=environment, check=True, timeout=200)
    sources = list(tmp_path.rglob("*.py"))
    for source in sources:
        os.utime(source, (epoch, epoch))
    code = """
import sys
from supervisor.process import bytecode_cache, module_cache
from supervisor.cli.program import build_parser
build_parser("run")
before = {*sys.modules}
with module_cache.used(), bytecode_cache.used():
    import supervisor.main
imported = {*sys.modules} - before
for name, module in sys.modules.items():
    spec = getattr(module, "__spec__", None)
    if name in imported and spec and spec.origin and spec.origin.endswith(".py"):
        assert type(spec.loader) is module_cache.RecordedLoader, (name, spec)
recorded = bytecode_cache.load(module_cache.FILE)["modules"]
assert len(imported & {*recorded}) > 300, len(imported & {*recorded})
from actors.frr.render import render, template_bytecode
environment = render.environment()
for name in environment.list_templates():
    environment.get_template(name)
texts, templates = bytecode_cache.of_program(), template_bytecode.of_program()
assert len(texts.found) > 500, len(texts.found)
others = [text for text in texts.compiled if "__hash__" not in text[0] and "attrs generated" not in text[1]]
assert not others, others
assert len(templates.found) == len(environment.list_templates()) > 5
assert not templates.compiled
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
