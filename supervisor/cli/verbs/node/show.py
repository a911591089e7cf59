"""``openperouter show``: configuration, desired state, FRR, the kernel, and what the host needs; never a secret."""

from __future__ import annotations

import argparse
from typing import Any

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings

from ...options import add_verb, read_desired

SUBJECTS = {
    "desired": "the desired state of this node, with where each part is configured",
    "kernel": "the router's devices and NICs in the kernel",
    "frr": "FRR's running configuration, or with --intended the desired one",
    "config": "the merged settings and the configuration files",
    "peer-config": "NAME: what FRR, BIRD or MetalLB on the host needs to peer with an L3VNI or 'passthrough'",
}


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    lines = "\n".join(f"  {subject:11} {meaning}" for subject, meaning in SUBJECTS.items())
    parser = add_verb(
        verbs,
        "show",
        run,
        summary="show the configuration, the desired state, FRR or the kernel",
        description=f"Show, without changing anything and without secrets:\n\n{lines}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subject", choices=tuple(SUBJECTS), metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="peer-config: an L3VNI's VNI, VRF or name, or passthrough"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of YAML or text (not for frr)")
    parser.add_argument("--intended", action="store_true", help="frr: the desired configuration")


def run(arguments: argparse.Namespace) -> int:
    """Print one subject."""
    if (arguments.subject == "peer-config") != (arguments.name is not None):
        what = "give a NAME to peer-config" if arguments.name is None else f"{arguments.subject} takes no NAME"
        raise CommandError(what, exit_codes.USAGE)
    settings = load_usable_settings(arguments.settings)
    match arguments.subject:
        case "desired":
            from supervisor.operations.documents import desired_document

            _print(desired_document(read_desired(arguments.settings)), as_json=arguments.json)
        case "peer-config":
            from supervisor.operations.peer_config import peer_config

            print(peer_config(read_desired(arguments.settings), arguments.name))
        case "config":
            from supervisor.operations.documents import configuration_document

            _print(configuration_document(settings), as_json=arguments.json)
        case "frr" if arguments.intended:
            from actors.frr.preview import rendered_redacted

            print(rendered_redacted(read_desired(arguments.settings), settings).rstrip())
        case "frr":
            import trio

            from actors.frr.preview import running_redacted

            print(trio.run(running_redacted, settings).rstrip())
        case "kernel":
            import trio

            from actors.netlink.preview import observe_kernel, observe_text

            if arguments.json:
                _print(trio.run(observe_kernel, settings), as_json=True)
            else:
                print(trio.run(observe_text, settings))
    return exit_codes.OK


def _print(document: object, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(document, indent=2, ensure_ascii=False, default=str))
    else:
        from supervisor.operations.documents import to_yaml

        print(to_yaml(document).rstrip())
