"""What docstrings and documents refer to exists: modules named in docstrings, and files named in the documents."""

from __future__ import annotations

import re

from .sources import CODE, ROOT, TESTS, modules

_MODULE = re.compile(r":mod:`~?([\w.]+)`")
_PATH = re.compile(r"`((?:supervisor|actors|config|packaging|tests|docs)/[\w./-]*)`")
_LINK = re.compile(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]*)?\)")


def absolute(reference: str, package: str) -> str:
    """Return the dotted name that a reference in a package means."""
    name = reference.lstrip(".")
    up = len(reference) - len(name) - 1
    return name if up < 0 else ".".join([*package.split(".")[: len(package.split(".")) - up], name])


def test_each_module_named_in_a_docstring_exists() -> None:
    known = {module.name for module in modules(*CODE, *TESTS)}
    missing = []
    for module in modules(*CODE, *TESTS):
        package = module.name if module.path.endswith("__init__.py") else module.name.rpartition(".")[0]
        for match in _MODULE.finditer(module.text):
            ours = match[1].startswith((".", "supervisor.", "actors.", "config.", "tests."))
            if ours and absolute(match[1], package) not in known:
                missing.append(f"{module.path}: {match[0]}")
    assert not missing, "\n".join(missing)


def test_each_file_named_in_a_document_exists() -> None:
    missing = []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text()
        named = [ROOT / match for match in _PATH.findall(text)] + [page.parent / match for match in _LINK.findall(text)]
        missing += [f"{page.name}: {path.relative_to(ROOT)}" for path in named if not path.exists()]
    assert not missing, "\n".join(missing)
