"""Write all manual pages into a directory: ``python3 packaging/man/generate.py DIRECTORY``.

What the program says about itself is in its parser and its models; these pages are made from the same objects, so they
cannot differ from ``--help`` and from what is accepted.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "packaging" / "docs"), str(HERE)]

from files_pages import files_page, settings_page  # noqa: E402
from program_page import page  # noqa: E402
from roff import header  # noqa: E402

from supervisor.cli.program import build_parser  # noqa: E402
from supervisor.version import VERSION  # noqa: E402

UNIT_PAGE = HERE / "openperouter.service.8"


def pages() -> dict[str, str]:
    """Return each page's text by its file name."""
    unit_header = header("OPENPEROUTER.SERVICE", 8, VERSION, "System administration")
    return {
        "openperouter.8": page(build_parser(), VERSION),
        "openperouter.yaml.5": settings_page(VERSION),
        "openperouter-files.5": files_page(VERSION),
        UNIT_PAGE.name: f"{unit_header}\n{UNIT_PAGE.read_text()}",
    }


def main() -> int:
    """Write the pages."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
