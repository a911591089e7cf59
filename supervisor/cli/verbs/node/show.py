"""``openperouter show``: configuration, desired state, FRR, kernel, parts of the status, and what the host needs.

Never a secret.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings, require_readable, require_readable_settings

from ...options import (
    OUTPUTS,
    add_output,
    add_quiet,
    add_verb,
    note,
    note_last,
    print_document,
    read_desired,
    run_and_show,
)
from ...terminal import Painter, print_line, wants_colour

if TYPE_CHECKING:
    from config.desired import DesiredState
    from config.settings import Settings
    from config.status import Status
    from supervisor.operations.inspection.current_status import CurrentStatus
    from supervisor.operations.inspection.history import PastEvent
    from supervisor.operations.inspection.routes import FoundRoutes

SUBJECTS = {
    "desired": "the desired state of this node, with where each part is configured",
    "kernel": "the router's devices and NICs in the kernel",
    "frr": "FRR's running configuration, or with --intended the desired one",
    "config": "the merged settings and the configuration files",
    "session": "NAME: BGP sessions by peer, or an L3VNI's or the passthrough's with the host: problems and history",
    "vni": "NAME: an L3VNI or L2VNI by number or name, with its sessions, the host's end, problems and history",
    "l2vni": "NAME: the same of L2VNIs only, whose names an L3VNI may have too",
    "route": "PREFIX|ADDRESS: the routes to it, in all VRFs or with --vrf in one, who announced them, and why not",
    "topology": "NICs, fabric sessions, VRFs, VNIs, host ends and remote VTEPs as a tree; what is down is marked",
    "peer-config": "NAME: what FRR, BIRD or MetalLB on the host needs to peer with an L3VNI or 'passthrough'",
}
#: The subjects that need a NAME, and those that show the daemon's status.
NAMED = ("session", "vni", "l2vni", "route", "peer-config")
FROM_STATUS = ("session", "vni", "l2vni", "topology")
#: What ``--output`` takes beyond the usual, and the subjects that have another choice than that.
PICTURES = ("dot", "svg")
OTHER_OUTPUTS = {"frr": ("text",), "peer-config": ("text",), "topology": (*OUTPUTS, *PICTURES)}


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    lines = "\n".join(f"  {subject:12} {meaning}" for subject, meaning in SUBJECTS.items())
    parser = add_verb(
        verbs,
        "show",
        run,
        summary="show the configuration, the desired state, the topology, a session, a VNI, FRR or the kernel",
        description=f"Show, without changing anything and without secrets:\n\n{lines}\n\n"
        f"{', '.join(FROM_STATUS)} are what the daemon reports; when it does not run or answer, its last status is "
        "shown\nwith a warning, and the exit code is 3 or 4.\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subject", choices=tuple(SUBJECTS), metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="session: a peer, an L3VNI or passthrough; vni, l2vni: a VNI's number or name; route: a prefix or an "
        "address; peer-config: an L3VNI's VNI, VRF or name, or passthrough",
    )
    parser.add_argument(
        "--vrf", metavar="VRF", help="route: in one VRF, by its name or a VNI's number or name; default"
    )
    about = "json and yaml: one document (not for frr and peer-config); topology: dot for Graphviz, svg for a drawing"
    output = add_output(parser, about, PICTURES)
    for picture in PICTURES:
        again = f"the same as --output {picture}"
        output.add_argument(f"--{picture}", action="store_const", dest="output", const=picture, help=again)
    add_quiet(parser, "print no notes on standard error")
    parser.add_argument("--intended", action="store_true", help="frr: the desired configuration")


def run(arguments: argparse.Namespace) -> int:
    """Print one subject."""
    _check_usage(arguments)
    settings = load_usable_settings(arguments.settings)
    if arguments.subject in FROM_STATUS:
        return _show_status(arguments, settings.run_dir)
    match arguments.subject:
        case "desired":
            from supervisor.operations.documents import desired_document

            _print(desired_document(read_desired(arguments.settings)), arguments.output)
        case "peer-config":
            from supervisor.operations.peer_config import peer_config

            print(peer_config(read_desired(arguments.settings), arguments.name))
        case "route":
            return _routes(arguments, settings)
        case "config":
            from supervisor.operations.documents import configuration_document

            require_readable([settings.node_config_file, settings.configs_dir])
            _print(configuration_document(settings), arguments.output)
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

            if arguments.output == "text":
                print(trio.run(observe_text, settings))
            else:
                _print(trio.run(observe_kernel, settings), arguments.output)
    return exit_codes.OK


def _check_usage(arguments: argparse.Namespace) -> None:
    subject = arguments.subject
    if (subject in NAMED) != (arguments.name is not None):
        what = f"give a NAME to {subject}" if arguments.name is None else f"{subject} takes no NAME"
        raise CommandError(what, exit_codes.USAGE)
    if arguments.vrf is not None and subject != "route":
        raise CommandError("--vrf is for route", exit_codes.USAGE)
    outputs = OTHER_OUTPUTS.get(subject, OUTPUTS)
    if arguments.output not in outputs:
        raise CommandError(f"{subject} has no output {arguments.output}, only {', '.join(outputs)}", exit_codes.USAGE)
    if arguments.intended and subject != "frr":
        raise CommandError("--intended is for frr", exit_codes.USAGE)


def _show_status(arguments: argparse.Namespace, run_dir: Path) -> int:
    """Print a part of the status; what it says of a daemon that gives none now is history."""
    from supervisor.operations.inspection.current_status import read_status

    seen = read_status(run_dir)
    if seen.is_last:
        note_last(seen)
    desired = _configured(arguments.settings)
    if arguments.subject == "topology":
        _topology(seen.status, desired, arguments)
    else:
        _details(seen, desired, arguments, run_dir)
    return seen.code


def _configured(settings_file: Path) -> DesiredState | None:
    """Return the desired state for its addresses; without one, the status is shown all the same."""
    from supervisor.operations.node_configuration import read_all

    require_readable_settings(settings_file)
    read = read_all(settings_file, remembered=True)
    require_readable([read.settings.node_config_file, read.settings.configs_dir])
    if read.desired is None:
        note("without the addresses of host ends: the configuration is not usable now (see openperouter validate)")
    return read.desired


def _topology(status: Status, desired: DesiredState | None, arguments: argparse.Namespace) -> None:
    from supervisor.operations.inspection.topology import lines, to_document, to_dot, topology

    root = topology(status, desired)
    if arguments.output == "dot":
        print(to_dot(root))
    elif arguments.output == "svg":
        from supervisor.operations.inspection.drawing import to_svg

        print(to_svg(root))
    elif arguments.output != "text":
        _print(to_document(root), arguments.output)
    else:
        for branch, place in lines(root):
            print(branch, end="")
            print_line(str(place), "bad" if place.down else "plain")


def _details(seen: CurrentStatus, desired: DesiredState | None, arguments: argparse.Namespace, directory: Path) -> None:
    from config.problems import Kind
    from supervisor.operations.inspection import details
    from supervisor.operations.inspection.history import session_history, vni_history

    from .details_page import session_page, vni_page

    painter, status, name = Painter(colour=wants_colour()), seen.status, arguments.name
    documents, pages = [], []
    if arguments.subject == "session":
        sessions = details.sessions_named(status, desired, name)
        events = _past_events(seen, directory)
        for session in sessions:
            history = None if events is None else session_history(session, events)
            pages.append(session_page(session, painter, history))
            documents.append(details.session_document(session, status) | (history.to_data() if history else {}))
    else:
        kinds = frozenset({Kind.L2VNI}) if arguments.subject == "l2vni" else details.VNI_KINDS
        vnis = details.vnis_named(status, desired, name, kinds)
        events = _past_events(seen, directory)
        for vni in vnis:
            history = None if events is None else vni_history(vni, events)
            pages.append(vni_page(vni, painter, history))
            documents.append(details.vni_document(vni, status) | (history.to_data() if history else {}))
    if arguments.output != "text":
        _print(documents, arguments.output)
    else:
        print("\n\n".join(pages))


def _routes(arguments: argparse.Namespace, settings: Settings) -> int:
    from actors.lib.frr.daemon_socket import DaemonSockets
    from supervisor.operations.inspection.routes import DEFAULT_VRF, find_routes, parse_target
    from supervisor.operations.router.inside import vrf_option

    from .details_page import route_page

    parse_target(arguments.name)
    vrf = DEFAULT_VRF if arguments.vrf == DEFAULT_VRF else vrf_option(arguments.settings, arguments.vrf)

    def show(found: FoundRoutes) -> None:
        if found.missing:
            note(f"without the paths of BGP: {found.missing}")
        if arguments.output != "text":
            _print([asdict(route) for route in (*found.routes, *found.evpn)], arguments.output)
        elif found.routes or found.evpn:
            painter = Painter(colour=wants_colour())
            print("\n\n".join(route_page(route, painter) for route in (*found.routes, *found.evpn)))

    found = run_and_show(partial(find_routes, DaemonSockets.of(settings), arguments.name, vrf), show)
    if found.more:
        note(f"{found.more} more are not shown: name a VRF with --vrf")
    if not found.routes:
        where = f"VRF {vrf}" if vrf else "any VRF"
        raise CommandError(f"there is no route to {arguments.name} in {where}", exit_codes.DEGRADED)
    return exit_codes.OK


def _past_events(seen: CurrentStatus, directory: Path) -> list[PastEvent] | None:
    """Return the changes that the daemon keeps; None without a daemon, or with one that does not say."""
    from supervisor.operations.inspection.history import past_events

    if seen.is_last:
        return None
    try:
        return past_events(directory)
    except (CommandError, OSError) as error:
        note(f"without the history: {error}")
        return None


def _print(document: object, output: str) -> None:
    """Print a document; what is nothing else is YAML for people too."""
    print_document(document, "yaml" if output == "text" else output)
