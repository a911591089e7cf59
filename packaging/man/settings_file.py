"""Print ``openperouter.yaml`` as it is installed: every setting with its default, commented out."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from config.settings import Settings  # noqa: E402

INTRODUCTION = """\
# Settings of the openperouter daemon: openperouter.yaml(5) describes them, 'openperouter validate' checks them. Each
# line shows a default. Instead of changing this file, put your own settings into conf.d/*.yaml beside it; the last
# value of a key wins. They are read when the daemon starts; restarting it does not affect forwarding.
#
# The router is configured in node-config.yaml and configs/openpe_*.yaml, see openperouter-files(5).
"""

#: These are also in the units: changing them here alone breaks the daemon.
TIED_TO_UNITS = frozenset({"state_dir", "run_dir", "netns", "frr_pathspace", "frr_etc_dir", "frr_run_dir"})


DEFAULTS = Settings().model_dump(mode="json", by_alias=True)


def lines() -> Iterator[str]:
    """Yield the file's lines."""
    yield INTRODUCTION
    for name, info in Settings.model_fields.items():
        if name not in TIED_TO_UNITS:
            yield from textwrap.wrap(info.description or "", 118, initial_indent="# ", subsequent_indent="# ")
            default = DEFAULTS[info.alias or name]
            # What has several values is on one line too.
            flow = None if isinstance(default, list | dict) else False
            yield "#" + yaml.safe_dump(
                {info.alias or name: default}, default_flow_style=flow, sort_keys=False, width=200
            )


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()))
