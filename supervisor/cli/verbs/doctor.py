"""``openperouter doctor``: what is wrong with this machine or with the router on it, and how to mend it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from supervisor.operations import exit_codes
from supervisor.operations.paths import conf_d

from ..options import add_settings, complain
from ..terminal import Painter, Style, wants_colour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervisor.operations.doctor import Finding

_STYLES: dict[str, Style] = {"ok": "good", "warning": "warn", "error": "bad"}


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "doctor",
        help="examine this machine and the router, and name the cure of each complaint",
        description="Look at what the router needs and at what it does: kernel, clock, disk, file modes, other "
        "network managers, FRR, the network namespace, the configuration, the API server's credentials, network "
        "NICs, MTU, sysctls, the daemon. Works before the first start and after the last one, with the daemon dead or "
        "alive, and changes nothing. Each complaint comes with its cure. Exits with 0 when all is well, "
        "1 when there are warnings only, 2 when there are errors.",
    )
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="print all findings as one JSON document")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine, show, and say how bad it is."""
    import trio

    from config.problems import errors
    from config.settings import load_settings
    from supervisor.operations.doctor import examine, probe

    settings, problems = load_settings(arguments.settings, conf_d(arguments.settings))
    for problem in errors(problems):
        complain(f"{problem}; looking on without it")
    findings = examine(trio.run(probe, settings, arguments.settings))
    if arguments.json:
        print(as_json(findings))
    else:
        print("\n".join(in_lines(findings, Painter(colour=wants_colour()))))
    return exit_code(findings)


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 2 for errors, 1 for warnings only, else 0."""
    levels = {finding.level.value for finding in findings}
    return 2 if "error" in levels else 1 if "warning" in levels else exit_codes.OK


def as_json(findings: Sequence[Finding]) -> str:
    """Return all findings as a document for programs; its members keep their meaning."""
    import json
    from dataclasses import asdict

    return json.dumps({"schema_version": 1, "findings": [asdict(finding) for finding in findings]}, indent=2)


def in_lines(findings: Sequence[Finding], painter: Painter) -> list[str]:
    """Return all findings for people: a line each, the cure below, a count at the end."""
    lines = []
    for finding in findings:
        level = painter.paint(f"{finding.level.value:7}", _STYLES[finding.level.value])
        lines.append(f"{level}  {painter.paint(f'{finding.topic}: {finding.message}', 'plain')}")
        if finding.cure:
            lines.append(painter.paint(f"         cure: {finding.cure}", "bold"))
    counts = [f"{sum(f.level.value == level for f in findings)} {level}" for level in ("error", "warning", "ok")]
    return [*lines, painter.paint(", ".join(counts), "bold")]
