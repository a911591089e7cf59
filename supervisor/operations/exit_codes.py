"""The exit codes of all verbs, and the error that carries one. Scripts rely on the codes: they never change.

Those from 64 on are sysexits.h's and the same as the daemon's own (``supervisor.runtime.faults``).
"""

from __future__ import annotations

from typing import Final

OK: Final = 0
DEGRADED: Final = 1
PENDING: Final = 2
NOT_RUNNING: Final = 3
NO_ANSWER: Final = 4
USAGE: Final = 64
NO_INPUT: Final = 66
UNAVAILABLE: Final = 69
KERNEL: Final = 71
ALREADY_RUNNING: Final = 75
NO_PERMISSION: Final = 77
CONFIG: Final = 78
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

TABLE: Final = """\
exit codes:
  0    success; status: ready; plan: nothing to do; doctor: all is well
  1    status: degraded; reload: refused, or not all is in force; try: reverted; try --status: no trial; \
doctor, join: warnings only; trace: no answer; show route: none
  2    status: running but not ready yet; plan, generate --check, migrate --check: there are changes to make; \
doctor: errors
  3    the daemon is not running
  4    no answer from the daemon, or no outcome of a reload, in time
  64   wrong usage; teardown: not confirmed
  66   a file that was named does not exist
  69   something needed is not available: FRR, the network namespace
  70   a bug in this program
  71   the kernel refused an operation
  75   another daemon is running
  77   permission denied: most verbs need root
  78   the configuration has errors
"""


class CommandError(Exception):
    """A command has failed; the text is for the user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
