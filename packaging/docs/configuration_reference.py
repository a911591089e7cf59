"""Write ``docs/configuration.md`` from the models, so that the reference cannot differ from what is accepted.

``python3 packaging/docs/configuration_reference.py`` prints it; ``--write`` replaces the file; a test compares both.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from pydantic import BaseModel

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from print_or_write import print_or_write  # noqa: E402

from config.models import L2Vni, L3Passthrough, L3Vni, RawFrrConfig, Underlay  # noqa: E402
from config.node import NodeConfig  # noqa: E402
from config.reference import ReferenceEntry, entries  # noqa: E402
from config.settings import Settings  # noqa: E402

TARGET: Final = ROOT / "docs" / "configuration.md"

# ruff: noqa: E501 - the document below is prose in tables
INTRODUCTION: Final = """\
# Configuration reference

Generated from the models by `packaging/docs/configuration_reference.py`; do not edit.

Three kinds of files are read, all YAML. Unknown keys are errors that name the closest known key; a key that differs only in upper
and lower case is accepted with a warning. Every message names file, line, column and field. `openperouter validate` checks
everything without touching anything and exits with 78 when there is an error.

| file | what | read |
|---|---|---|
| `/etc/openperouter/openperouter.yaml`, then `/etc/openperouter/conf.d/*.yaml` in lexical order; the last value of a key wins | settings of the daemon | at start; a reload reports changes that need a restart |
| `/etc/openperouter/node-config.yaml` | the node's identity | at start, on change, on reload |
| `/etc/openperouter/configs/openpe_*.yaml` in lexical order | the router | at start, on change, on reload |

A router file has these top-level keys, each optional: `underlays`, `l3vnis`, `l2vnis` and `rawfrrconfigs` (lists), and `bgppassthrough` (one
object). Entries of `l3vnis` and `l2vnis` may carry a `name` beside the fields below; other entries refer to them by it.

If a configuration or password file cannot be read or parsed, its last good content stays in force. A missing directory may mean that
its file system is not mounted, so its files stay in force too, even across restarts, until
`systemctl reload openperouter` (or `openperouter reload`) confirms that they were removed. A single file that is removed is out of force
at once. An invalid entry is ignored, together with what depends on it; everything else is applied. While there is no usable
underlay, nothing changes at all.
"""

SECTIONS: Final[tuple[tuple[str, type[BaseModel]], ...]] = (
    ("Settings (`openperouter.yaml`)", Settings),
    ("Node configuration (`node-config.yaml`)", NodeConfig),
    ("`underlays[]`", Underlay),
    ("`l3vnis[]`", L3Vni),
    ("`l2vnis[]`", L2Vni),
    ("`bgppassthrough`", L3Passthrough),
    ("`rawfrrconfigs[]`", RawFrrConfig),
)


def reference() -> str:
    """Return the whole document."""
    return "\n".join([INTRODUCTION, *(section(title, model) for title, model in SECTIONS)])


def section(title: str, model: type[BaseModel]) -> str:
    """Return one model's heading and table."""
    head = [f"## {title}", "", (model.__doc__ or "").strip().split("\n\n")[0].replace("``", "`"), ""]
    table = ["| field | type | default | constraints | meaning |", "|---|---|---|---|---|", *map(row, entries(model))]
    return "\n".join([*head, *table, ""])


def row(entry: ReferenceEntry) -> str:
    """Return one line of a model's table."""
    cells = (f"`{entry.path}`", entry.type, entry.default, entry.constraints, entry.description)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(print_or_write(TARGET, reference()))
