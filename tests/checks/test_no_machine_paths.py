"""The project works on any machine: none is named in its files, and it names no host that it would download from."""

from __future__ import annotations

import re

import pytest

from .sources import ROOT, tracked_files

#: Assembled, so that this file does not find itself.
_FORBIDDEN = {
    "a developer's directory": (r"(?<![\w.-])/wo" + r"rk/", r"/ho" + r"me/\w", r"/var/t" + r"mp/"),
    "a package registry": (
        "py" + r"pi\.org",
        "files.python" + "hosted",
        r"deb\.deb" + r"ian\.org",
        r"proxy\.gol" + "ang",
    ),
    "a person's address": (r"[\w.]+@(?!openperouter)[\w-]+\.(com|org|net|io)\b",),
}
_TEXT = frozenset({".py", ".md", ".sh", ".toml", ".txt", ".yaml", ".yml", ".conf", ".service", ".j2", ".c", ".cfg", ""})


@pytest.mark.parametrize("what", sorted(_FORBIDDEN))
def test_no_file_names(what: str) -> None:
    forbidden = re.compile("|".join(_FORBIDDEN[what]))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        if path.suffix in _TEXT
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if forbidden.search(line)
    ]
    assert not found, "\n".join(found)
