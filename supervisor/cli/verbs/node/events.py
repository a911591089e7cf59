"""``openperouter events``: what has changed on the node, from the running daemon."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.control_client import ANSWER_SECONDS, ask, follow
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import CONTROL_SOCKET, run_dir

from ...options import add_output, add_verb, complain, print_document
from ...terminal import moment, print_line

DESCRIPTION: Final = (
    "Show what has changed since the daemon started, oldest first: files read, configurations applied and verified, "
    "reloads, BGP sessions, VNIs, interfaces, problems. The daemon keeps the newest 2000 events since its start; the "
    "journal (openperouter logs) has more. With --follow it continues with each change, and waits up to a minute for a "
    "daemon that restarts. Exits with 3 when the daemon is not running and with 4 when it does not answer."
)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(verbs, "events", run, summary="show what has changed on the node", description=DESCRIPTION)
    parser.add_argument("-f", "--follow", action="store_true", help="continue with each change until interrupted")
    add_output(parser, "json: one object per line; yaml: one document each")


def run(arguments: argparse.Namespace) -> int:
    """Print the events."""
    path = run_dir(arguments.settings) / CONTROL_SOCKET
    page = _Page(arguments.output)
    if arguments.follow:
        follow(lambda: page.read(path, follow=True), complain)
    for _ in page.read(path, follow=False):
        pass
    return exit_codes.OK


@dataclass
class _Page:
    """What was printed: of which daemon's life, and up to which event."""

    output: str
    instance: str = ""
    last: int = 0

    def read(self, path: Path, *, follow: bool) -> Iterator[None]:
        """Print the events that are new until the daemon closes, one for each step."""
        request = {"verb": "events", "follow": follow, "instance": self.instance, "after": self.last}
        for answer in ask(path, request, seconds=None if follow else ANSWER_SECONDS):
            if not isinstance(answer, dict) or "error" in answer:
                said = answer.get("error") if isinstance(answer, dict) else answer
                raise CommandError(f"the daemon refuses: {said}", exit_codes.NO_ANSWER)
            if isinstance(head := answer.get("events"), dict):
                self._begin(str(head.get("instance")))
            else:
                self._print(answer)
            yield

    def _begin(self, instance: str) -> None:
        if self.instance and instance != self.instance:
            self.last = 0
            complain("the daemon was restarted; what follows comes from the new process")
        self.instance = instance

    def _print(self, event: Mapping[str, Any]) -> None:
        number = int(event["number"])
        if self.last and number > self.last + 1:
            complain(f"{number - self.last - 1} events are missing: the daemon keeps the newest only")
        self.last = number
        if self.output != "text":
            print_document(event, self.output, stream=True)
        else:
            print_line(event_line(event), "warn" if event["level"] == "warning" else "plain")


def event_line(event: Mapping[str, Any]) -> str:
    """Return an event as one line."""
    subject, message = str(event["subject"]), str(event["message"])
    what = message if subject in message else f"{subject}: {message}"
    return f"{moment(event['at'])} {event['topic']}: {what}"
