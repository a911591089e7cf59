"""``openperouter generate``: the files of many nodes from one inventory; the units that run FRR in containers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import require_readable

from ...options import StoreFile, add_quiet, add_verb, complain, note
from ...terminal import is_quiet, print_problems


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(
        verbs,
        "generate",
        run,
        summary="make the files of many nodes from one inventory, or the units that run FRR in containers",
        description="nodes: make the files of all nodes from an inventory: node-config.yaml, router files in which "
        "${NAME} stands for a value of the node, and settings, with the layout of /etc/openperouter below "
        "DIRECTORY/NODE, for Ansible or any other tool that copies files; or user data for cloud-init. Each node's "
        "files are checked as the daemon would check them; names and indices must be unique. Nothing is written if "
        "there is an error: exits with 78. The directory belongs to this command: what is no longer in the inventory "
        "is removed. quadlet: make the units with which systemd runs FRR in podman's containers, drop-ins for the "
        "package's units, and the setting runtime; starts nothing and pulls no image. systemd: the same as plain units "
        "that call podman, for a podman without quadlets; a node has one kind of them.",
    )
    parser.add_argument(
        "what", choices=("nodes", "quadlet", "systemd"), metavar="KIND", help="nodes, quadlet or systemd"
    )
    parser.add_argument(
        "inventory", nargs="?", type=Path, action=StoreFile, metavar="INVENTORY", help="nodes: the inventory, YAML"
    )
    parser.add_argument(
        "directory", nargs="?", type=Path, action=StoreFile, metavar="DIRECTORY", help="nodes: where the files go"
    )
    parser.add_argument("--format", choices=("files", "cloud-init"), help="nodes: a directory, or user data, for each")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; print what differs; exits with 2 when something does"
    )
    parser.add_argument(
        "--node",
        metavar="NAME",
        help="with nodes --check: compare this node's files with DIRECTORY (/etc/openperouter)",
    )
    parser.add_argument(
        "--output", type=Path, action=StoreFile, metavar="DIR", help="units: write below this directory (default: /)"
    )
    parser.add_argument("--image", metavar="REF", help="units: the router's image (default: this version's)")
    parser.add_argument(
        "--node-config", type=Path, action=StoreFile, metavar="FILE", help="units: the setting nodeConfigFile"
    )
    parser.add_argument("--remove", action="store_true", help="units: remove the files instead")
    add_quiet(parser, "print errors only, not what is written or differs")


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked for; options of the other kind are refused."""
    units = arguments.what != "nodes"
    other = ("inventory", "directory", "format", "node") if units else ("output", "image", "node_config", "remove")
    wrong = [name for name in other if getattr(arguments, name) not in (None, False)]
    if wrong:
        name = wrong[0] if wrong[0] in ("inventory", "directory") else "--" + wrong[0].replace("_", "-")
        raise CommandError(f"generate {arguments.what} does not take {name}", exit_codes.USAGE)
    return _units(arguments) if units else _nodes(arguments)


def _units(arguments: argparse.Namespace) -> int:
    """Write, compare or remove the units."""
    from supervisor.operations.router import podman_units

    kind: podman_units.Kind = arguments.what
    root: Path = arguments.output or Path("/")
    if arguments.remove:
        if arguments.check or arguments.image is not None or arguments.node_config:
            raise CommandError("--remove takes --output only", exit_codes.USAGE)
        _say(podman_units.remove(kind, root), "there is nothing to remove")
        return exit_codes.OK
    parameters = podman_units.checked(
        podman_units.DEFAULT_IMAGE if arguments.image is None else arguments.image, arguments.node_config
    )
    wanted = podman_units.texts(parameters, kind)
    podman_units.refuse_both(kind, root)
    if arguments.check:
        lines = podman_units.differences(wanted, root)
        _say(lines, "the units are as they should be")
        return exit_codes.PENDING if lines else exit_codes.OK
    lines = podman_units.write(wanted, root)
    _say(lines, "the units are as they should be")
    if lines:
        note(f"now: systemctl daemon-reload; with the image loaded, systemctl restart {podman_units.SERVICES}")
    return exit_codes.OK


def _say(lines: Sequence[str], otherwise: str) -> None:
    """Print what was done or differs, or that nothing was or does."""
    if not is_quiet():
        print("\n".join(lines) or otherwise)


def _nodes(arguments: argparse.Namespace) -> int:
    """Check everything, then write or compare."""
    from supervisor.operations import inventory

    if arguments.inventory is None or arguments.directory is None:
        raise CommandError("generate nodes needs INVENTORY and DIRECTORY", exit_codes.USAGE)
    if arguments.node and (not arguments.check or arguments.format == "cloud-init"):
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
        _say(inventory.write(wanted, directory), f"{directory} is as it should be")
        return exit_codes.OK
    if arguments.node:
        texts = inventory.of_node(nodes, arguments.node)
        lines = inventory.differences(texts, directory, inventory.installed_files(directory))
    else:
        lines = inventory.differences(wanted, directory, inventory.generated_files(directory))
    _say(lines, f"{directory} is as it should be")
    return exit_codes.PENDING if lines else exit_codes.OK
