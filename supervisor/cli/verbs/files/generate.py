"""``openperouter generate``: the files of many nodes from one inventory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import require_readable

from ...options import StoreFile, add_verb, complain
from ...terminal import print_problems


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "generate",
        run,
        summary="make the files of many nodes from one inventory",
        description="Make the files of all nodes from an inventory: node-config.yaml, router files in which ${NAME} "
        "stands for a value of the node, and settings, with the layout of /etc/openperouter below DIRECTORY/NODE, for "
        "Ansible or any other tool that copies files; or user data for cloud-init. Each node's files are checked as "
        "the daemon would check them; names and indices must be unique. Nothing is written if there is an error: "
        "exits with 78. The directory belongs to this command: what is no longer in the inventory is removed.",
    )
    parser.add_argument("what", choices=("nodes",), metavar="WHAT", help="nodes")
    parser.add_argument("inventory", type=Path, action=StoreFile, metavar="INVENTORY", help="the inventory, YAML")
    parser.add_argument("directory", type=Path, action=StoreFile, metavar="DIRECTORY", help="where the files go")
    parser.add_argument(
        "--format", choices=("files", "cloud-init"), default="files", help="a directory, or user data, for each node"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; print what differs; exits with 2 when something does"
    )
    parser.add_argument(
        "--node", metavar="NAME", help="with --check: compare this node's files with DIRECTORY (/etc/openperouter)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check everything, then write or compare."""
    from supervisor.operations import inventory

    if arguments.node and (not arguments.check or arguments.format != "files"):
        raise CommandError("--node needs --check, and the format files", exit_codes.USAGE)
    require_readable([arguments.inventory])
    try:
        nodes, problems = inventory.generate(arguments.inventory)
    except FileNotFoundError:
        raise CommandError(f"{arguments.inventory}: no such file", exit_codes.NO_INPUT) from None
    print_problems(problems)
    if not nodes:
        complain("nothing is written")
        return exit_codes.CONFIG
    directory: Path = arguments.directory
    wanted = inventory.tree(nodes, cloud_init=arguments.format == "cloud-init")
    if not arguments.check:
        print("\n".join(inventory.write(wanted, directory)) or f"{directory} is as it should be")
        return exit_codes.OK
    if arguments.node:
        texts = inventory.of_node(nodes, arguments.node)
        lines = inventory.differences(texts, directory, inventory.installed_files(directory))
    else:
        lines = inventory.differences(wanted, directory, inventory.generated_files(directory))
    print("\n".join(lines) or f"{directory} is as it should be")
    return exit_codes.PENDING if lines else exit_codes.OK
