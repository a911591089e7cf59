"""``openperouter show``: the configuration, what it means, and what FRR and the kernel have; never a secret."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from supervisor.operations import exit_codes

from ..options import CommandError, add_settings, complain

if TYPE_CHECKING:
    from config.desired import DesiredState
    from config.settings import Settings

SUBJECTS = {
    "desired": "what this node should be, with where each part is configured",
    "kernel": "the devices of ours and the NICs, as the kernel has them",
    "frr": "FRR's running configuration, or with --intended the one that it should have",
    "config": "the merged settings and the configuration files",
}


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    lines = "\n".join(f"  {subject:8} {meaning}" for subject, meaning in SUBJECTS.items())
    parser: argparse.ArgumentParser = verbs.add_parser(
        "show",
        help="show the configuration, the desired state, FRR or the kernel",
        description=f"Show, without changing anything and without secrets:\n\n{lines}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(parser)
    parser.add_argument("subject", choices=tuple(SUBJECTS), metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--json", action="store_true", help="print JSON instead of YAML or text (not for frr)")
    parser.add_argument("--intended", action="store_true", help="frr: the configuration that the files mean")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one subject."""
    from supervisor.operations.node_configuration import load_usable_settings

    settings = load_usable_settings(arguments.settings)
    match arguments.subject:
        case "desired":
            from supervisor.operations.documents import desired_document

            _print(desired_document(_desired(arguments)), as_json=arguments.json)
        case "config":
            from supervisor.operations.documents import configuration_document

            _print(configuration_document(settings), as_json=arguments.json)
        case "frr":
            _show_frr(arguments, settings)
        case "kernel":
            _show_kernel(settings, as_json=arguments.json)
    return exit_codes.OK


def _desired(arguments: argparse.Namespace) -> DesiredState:
    from config.problems import errors
    from supervisor.operations.node_configuration import read_all

    read = read_all(arguments.settings, remembered=True)
    if told := read.api_summary(time.time()):
        complain(told)
    if read.desired is None:
        for problem in read.problems:
            complain(str(problem))
        raise CommandError(f"no usable configuration: {errors(read.problems)[0]}", exit_codes.CONFIG)
    return read.desired


def _show_frr(arguments: argparse.Namespace, settings: Settings) -> None:
    import trio

    from actors.frr.preview import rendered_redacted, running_redacted

    if arguments.intended:
        print(rendered_redacted(_desired(arguments), settings).rstrip())
    else:
        print(trio.run(running_redacted, settings).rstrip())


def _show_kernel(settings: Settings, *, as_json: bool) -> None:
    import trio

    from actors.netlink.preview import observe_kernel, observe_text

    if as_json:
        _print(trio.run(observe_kernel, settings), as_json=True)
    else:
        print(trio.run(observe_text, settings))


def _print(document: object, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(document, indent=2, ensure_ascii=False, default=str))
    else:
        from supervisor.operations.documents import to_yaml

        print(to_yaml(document).rstrip())
