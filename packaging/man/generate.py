"""Write all manual pages into a directory: ``python3 packaging/man/generate.py DIRECTORY``.

openperouter(8) is made by argparse-manpage from the parser that also prints ``--help``; ``openperouter.8.sections`` has
the sections that the parser cannot know. The other pages are written by hand, ``openperouter.service.8`` and its
neighbours; in them a comment ``keys of MODEL`` stands for the keys of a configuration model, so that the pages cannot
differ from what the program accepts.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from argparse_manpage.manpage import Manpage

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "packaging" / "docs")]

from configuration_reference import SECTIONS  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from config.reference import entries  # noqa: E402
from supervisor.cli.program import build_parser  # noqa: E402
from supervisor.version import VERSION  # noqa: E402

MANUALS = {"5": "File formats", "8": "System administration"}
MODELS = {model.__name__: model for _, model in SECTIONS}
KEYS_OF = re.compile(r'^\.\\" keys of (\w+)$', re.MULTILINE)
CODE = re.compile(r"``?([^`]+)``?")
#: Characters with a meaning of their own in roff, and how to print them (groff_char(7)).
ESCAPES = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "^": "\\(ha", "~": "\\(ti"})


def pages() -> dict[str, str]:
    """Return each page's text by its file name."""
    by_hand = {path.name: page_by_hand(path) for path in sorted(HERE.glob("*.[58]"))}
    return {"openperouter.8": program_page(), **by_hand}


def program_page() -> str:
    """Return openperouter(8)."""
    # The width of the usage lines, which argparse takes from the terminal.
    os.environ["COLUMNS"] = "80"
    parser = build_parser()
    codes, parser.epilog = parser.epilog or "", None
    page = Manpage(parser, format="single-commands-section")
    page.section, page.manual, page.source = "8", MANUALS["8"], f"openperouter {VERSION}"
    page.description = "this node as an EVPN provider edge"
    page.add_section("exit status", ">", "\n".join(exit_status(codes)))
    page.parse_include(HERE / "openperouter.8.sections")
    return str(page)


def exit_status(table: str) -> Iterator[str]:
    """Yield an item for each line of the table that ``--help`` prints."""
    for line in table.splitlines()[1:]:
        code, meaning = line.split(maxsplit=1)
        yield from (".TP", f"\\fB{code}\\fR", prose(meaning))


def page_by_hand(path: Path) -> str:
    """Return a page with its title line and its keys. Reproducible builds fix the date with SOURCE_DATE_EPOCH."""
    section = path.suffix.removeprefix(".")
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    title = f'.TH "{path.stem.upper()}" "{section}" "{date}" "openperouter {VERSION}" "{MANUALS[section]}"\n'
    return title + KEYS_OF.sub(lambda match: "\n".join(keys(MODELS[match[1]])), path.read_text())


def keys(model: type[BaseModel]) -> Iterator[str]:
    """Yield what a model is, then an item for each of its keys."""
    yield prose((model.__doc__ or "").split("\n\n")[0])
    for entry in entries(model):
        default = f"default {entry.default}" if entry.default.startswith("`") else entry.default.replace("**", "")
        traits = ", ".join(filter(None, (entry.type, default, entry.constraints)))
        yield from (".TP", prose(f"`{entry.path}`"), prose(entry.description), ".br", prose(f"({traits})"))


def prose(text: str) -> str:
    """Return text on one line without anything that roff would interpret; what stands in backticks is bold."""
    pieces = CODE.split(" ".join(text.split()).translate(ESCAPES))
    line = "".join(f"\\fB{piece}\\fR" if position % 2 else piece for position, piece in enumerate(pieces))
    return f"\\&{line}" if line.startswith(".") or not line else line


def main() -> int:
    """Write the pages."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
