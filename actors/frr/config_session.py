"""Configures one of FRR's daemons in a session with it, as ``vtysh -d DAEMON -f FILE`` does.

Configuration commands of one daemon come in, with every context closed by ``exit``; the daemon's complaints go out,
with the text of its answers only. A vtysh process matches each line against the commands of all daemons before it asks
that one, and takes longer to start than a daemon needs for a network (docs/performance.md).

Lines go out together up to one that opens a context: what is inside a context that the daemon refuses would be
commands of another one, so it is left out. mgmtd gets line by line, because it answers a line only after it has handed
it on, and reads nothing meanwhile. It commits all lines at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.lib.frr.daemon_socket import Answer, DaemonSession
from config.syntax.frr_grammar import walk

#: What vtysh sends before and after a file (FRR 10.3). Without "file-lock" entering configuration mode takes no lock.
_OPENING: Final = "configure terminal file-lock"
_BEGIN: Final = "XFRR_start_configuration"
_END: Final = ("XFRR_end_configuration", "end")
#: Lines that go out together: a fraction of a socket's buffer.
TOGETHER: Final = 64


async def configure(session: DaemonSession, commands: str, *, together: int = TOGETHER) -> list[str]:
    """Run configuration commands; return the lines that the daemon answered, which are complaints."""
    [opened] = await session.run((_OPENING,))
    if not opened.accepted:
        return list(_complaints(opened))
    answers = await session.run((_BEGIN,))
    waiting: list[str] = []
    #: The depth inside a context that was refused, if any.
    refused: int | None = None
    for depth, line in walk(commands):
        if refused is not None:
            if depth < refused:
                # Its own end is left out as well.
                refused = None
            continue
        waiting.append("exit" if line is None else line.text)
        opens = line is not None and line.opens
        if opens or len(waiting) >= together:
            answers += await session.run(waiting)
            waiting = []
            if opens and not answers[-1].accepted:
                refused = depth
    answers += await session.run(waiting)
    for command in _END:
        answers += await session.run((command,))
    return [complaint for answer in answers for complaint in _complaints(answer)]


def _complaints(answer: Answer) -> Iterator[str]:
    lines = [line for line in answer.text.splitlines() if line.strip()]
    yield from lines
    if not lines and not answer.accepted:
        yield f"% refused with status {answer.status}"
