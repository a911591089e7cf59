"""openperouter(8), from the parser that also makes ``--help``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from roff import bold, header, heading, italic, item, paragraphs, plain, prose, see_also, subheading

FILES = (
    (
        "/etc/openperouter/openperouter.yaml",
        "Settings of the daemon; conf.d/*.yaml beside it override it. See openperouter.yaml(5).",
    ),
    ("/etc/openperouter/node-config.yaml", "Which node this is. See openperouter-files(5)."),
    ("/etc/openperouter/configs/openpe_*.yaml", "What the router should be. See openperouter-files(5)."),
    ("/etc/frr/perouter/", "FRR's own files for the router; frr.conf is written by the daemon."),
    (
        "/var/lib/openperouter/",
        "What must survive a restart: last good files, the journal of NICs, VRF tables.",
    ),
    ("/run/openperouter/", "Control socket, lock, and the state file that stays readable when the daemon is dead."),
)


def page(parser: argparse.ArgumentParser, version: str) -> str:
    """Return the whole page."""
    lines = [
        header("OPENPEROUTER", 8, version, "System administration"),
        heading("name"),
        f"{parser.prog} \\- this node as an EVPN provider edge",
        heading("synopsis"),
        f"{bold(parser.prog)} [{italic('OPTION')}...] {italic('COMMAND')} [{italic('ARGUMENT')}...]",
        heading("description"),
        *paragraphs(parser.description or ""),
        heading("options"),
        *options(parser),
        heading("commands"),
        *commands(parser),
        heading("exit status"),
        *exit_status(parser.epilog or ""),
        heading("files"),
    ]
    for path, text in FILES:
        lines += item(italic(path), text)
    lines += see_also(
        ("openperouter.yaml", 5),
        ("openperouter-files", 5),
        ("openperouter.service", 8),
        ("journalctl", 1),
        ("vtysh", 1),
    )
    return "\n".join(lines) + "\n"


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield an item for each option and argument of a parser."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield from item(tag(action), expanded(parser, action))


def tag(action: argparse.Action) -> str:
    """Return how an option or argument is written."""
    value = metavar(action)
    if not action.option_strings:
        return italic(value) + ("..." if action.nargs in ("*", "+") else "")
    shown = [bold(name) for name in action.option_strings]
    return ", ".join(shown) + (f" {italic(value)}" if action.nargs != 0 else "")


def metavar(action: argparse.Action) -> str:
    """Return the word that stands for a value."""
    if action.choices is not None:
        return "|".join(str(choice) for choice in action.choices)
    return str(action.metavar or action.dest.upper())


def expanded(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return an option's help with argparse's own placeholders filled in."""
    formatter = argparse.HelpFormatter(parser.prog)
    return formatter._expand_help(action) if action.help else ""


def commands(parser: argparse.ArgumentParser, prefix: str = "") -> Iterator[str]:
    """Yield a subsection for each command, those below a command after it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield from command_section(f"{prefix}{name}", command, action)


def command_section(
    name: str, command: argparse.ArgumentParser, parent: argparse._SubParsersAction[argparse.ArgumentParser]
) -> Iterator[str]:
    """Yield one command's heading, description and options."""
    yield subheading(name)
    summary = next((one.help for one in parent._choices_actions if one.dest == name.rsplit(maxsplit=1)[-1]), "") or ""
    yield from paragraphs(command.description or summary)
    yield from own_options(command)
    yield from commands(command, f"{name} ")


def own_options(command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the items of a command, without those that all commands share and that are described once."""
    for action in command._actions:
        shared = isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        if not shared and "--settings" not in action.option_strings:
            yield from item(tag(action), expanded(command, action))


def exit_status(table: str) -> Iterator[str]:
    """Yield the table of exit codes: lines of a number and its meaning, after a title."""
    for line in table.strip().splitlines():
        code, _, meaning = line.strip().partition(" ")
        if code.isdigit():
            yield from item(bold(code), meaning.strip())
        elif not line.endswith(":"):
            yield from (".br", prose(plain(line)))
