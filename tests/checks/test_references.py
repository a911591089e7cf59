"""What docstrings and documents refer to exists: modules named in docstrings, and files named in the documents."""

from __future__ import annotations

import re
from pathlib import Path

from .sources import CODE, ROOT, TESTS, modules

_MODULE = re.compile(r":mod:`~?([\w.]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r"\]\((?!https?:)([\w./-]+)#([\w-]+)\)")
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
    roots = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"))
    for page in (*roots, *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text()
        named = [ROOT / match for match in _PATH.findall(text)] + [page.parent / match for match in _LINK.findall(text)]
        missing += [f"{page.name}: {path.relative_to(ROOT)}" for path in named if not path.exists()]
    assert not missing, "\n".join(missing)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = (match.lower().replace("`", "") for match in _HEADING.findall(page.read_text()))
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings}


def test_each_section_that_the_runbook_refers_to_exists() -> None:
    page = ROOT / "docs/alerts.md"
    referred = re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text())
    assert len(referred) > 10
    missing = [
        f"{file}#{anchor}" for file, anchor in referred if anchor not in anchors(page.parent / (file or page.name))
    ]
    assert not missing, missing


def test_each_promise_of_the_security_page_has_a_test_and_its_links_lead_somewhere() -> None:
    page = ROOT / "SECURITY.md"
    promises = page.read_text().partition("## Promises")[2].partition("## ")[0].split("\n\n**")[1:]
    assert len(promises) > 6
    for promise in promises:
        assert "(tests/" in promise or "(docs/operations.md#what-the-daemon-may-do)" in promise, promise[:60]
    for file, anchor in _ANCHOR.findall(page.read_text()):
        assert anchor in anchors(ROOT / file), f"{file}#{anchor}"
