"""The documentation as a site: it builds strictly, needs nothing from elsewhere, and a broken link fails the build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .sources import ROOT

pytest.importorskip("material", reason="no mkdocs-material: packaging/requirements/dev.txt brings it")

#: What the build reads.
SOURCES = ("mkdocs.yml", "README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
_OUTSIDE = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"' >]+""")


def build(tree: Path, site: Path) -> subprocess.CompletedProcess[str]:
    # Proxies that are not there: a build that asks anyone fails.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=200)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_it_has_every_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    wanted = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    wanted |= {
        Path(f"{name}.html") for name in ("index", "404", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")
    }
    pages = {path.relative_to(site) for path in site.rglob("*.html")}
    assert pages == wanted
    outside = [f"{page}: {found}" for page in pages for found in _OUTSIDE.findall((site / page).read_text())]
    assert not outside, outside
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        assert not re.search(r"""@import|url\(["']?(?:https?:)?//""", sheet.read_text()), sheet
    assert (site / "images/web.png").is_file()


def test_links_between_the_root_and_the_folder_lead_to_pages(site: Path) -> None:
    assert '<a href="index.html">wheel</a>' in (site / "cluster.html").read_text()
    security = (site / "SECURITY.html").read_text()
    assert 'href="merging.html#conflicts"' in security
    # What is no page of the site is text.
    assert "test_rbac" in security
    assert not re.search(r'href="[^"]*test_rbac', security)


def test_broken_links_and_a_page_without_a_place_fail(tmp_path: Path) -> None:
    for name in SOURCES:
        shutil.copy(ROOT / name, tmp_path)
    for name in ("docs", "packaging"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    faults = {
        "docs/glossary.md": "[x](no-such-page.md) [x](merging.md#no-such-section)",
        "README.md": "[x](docs/no-such-file.md) [x](docs/merging.md#neither-this)",
        "docs/new.md": "# A page without a place",
    }
    for page, text in faults.items():
        with (tmp_path / page).open("a") as out:
            out.write(f"\n{text}\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for complaint in ("no-such-page.md", "no-such-section", "no-such-file.md", "neither-this", "new.md"):
        assert complaint in done.stdout + done.stderr, complaint
