"""``openperouter schema``: the JSON Schema of a configuration file, for editors."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from supervisor.operations import exit_codes

from ...options import add_verb

FILES: Final = ("router", "node", "settings")


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "schema",
        run,
        summary="print the JSON Schema of a configuration file, for editors",
        description="Print the JSON Schema (draft 2020-12) of router files (openpe_*.yaml), of node-config.yaml or of "
        "the settings. Editors with yaml-language-server complete and check a file whose first line is "
        "'# yaml-language-server: $schema=FILE', where FILE has this output. 'openperouter validate' checks more.",
    )
    parser.add_argument(
        "file", nargs="?", choices=FILES, default="router", metavar="FILE", help="router (default), node or settings"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one schema."""
    from pydantic import BaseModel

    from config.node import NodeConfig
    from config.reference import editor_schema
    from config.settings import Settings
    from config.sources.naming import RouterFile

    models: dict[str, type[BaseModel]] = {"router": RouterFile, "node": NodeConfig, "settings": Settings}
    print(json.dumps(editor_schema(models[arguments.file]), indent=2, ensure_ascii=False))
    return exit_codes.OK
