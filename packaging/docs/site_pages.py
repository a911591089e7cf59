"""A hook of mkdocs (``mkdocs.yml``): the pages of the checkout's root become pages of the site.

README.md is the site's first page. Links between the root's pages and those of ``docs`` are made to fit the site, where
all are in one folder; a link to what is not a page, such as a test, becomes its text. mkdocs then checks every link and
anchor that is left.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
#: The root's pages, by their names on the site.
PAGES: Final = {"index.md": "README.md"} | {
    name: name for name in ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
}
_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]\[]*)\]\((?P<path>[\w./-]+)(?P<anchor>#[\w-]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the root's pages."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Return a page's text with links that fit the site."""
    source = ROOT / PAGES[page.file.src_uri] if page.file.src_uri in PAGES else ROOT / "docs" / page.file.src_uri
    folder = Path(page.file.src_uri).parent

    def fitted(match: re.Match[str]) -> str:
        target = (source.parent / match["path"]).resolve()
        for name, root_page in PAGES.items():
            if target == ROOT / root_page:
                up = "../" * (len(folder.parts))
                return f"[{match['text']}]({up}{name}{match['anchor'] or ''})"
        if source.parent == ROOT and target.is_relative_to(ROOT / "docs"):
            return f"[{match['text']}]({target.relative_to(ROOT / 'docs')}{match['anchor'] or ''})"
        # A file of the checkout that is not a page; what does not exist stays, and mkdocs complains.
        return match["text"] if target.exists() and target.suffix != ".md" else match[0]

    return _LINK.sub(fitted, markdown)
