"""The DHCP daemon of the CNI plugins, as a child process: it keeps the leases of interfaces with ``ipam`` of type dhcp.

The plugin ``dhcp`` asks the daemon over a Unix socket: ADD acquires a lease in the router's namespace, which the daemon
renews from then on, DEL releases it. The daemon has its leases in memory only, and never changes an address: when a
server does not renew a lease it binds another one, says so in a line of output and leaves the interface as it is; when
the lease ends it sets the interface down (plugins 1.1.1, lease.go). So:

* It runs while an interface needs it. It is started again, with backoff, when it ends or does not answer.
* Each run has a number. A lease is only known to be held, and its address to be right, by the run in which it was
  acquired: with another one each lease is acquired again and compared (:mod:`.attachments`).
* Once it has bound another lease it is started again at once, so that the same happens. It cannot be asked for the
  address instead: 1.1.1 acquires one lease more for each question, and maintains all of them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from config.models.cni import DHCP
from config.settings import Settings
from config.syntax.printable import one_line
from supervisor.logs import message_ids
from supervisor.logs.logger import get_logger
from supervisor.process.subprocesses import running_child
from supervisor.runtime.faults import DependencyFault
from supervisor.runtime.restart_policy import HEALTHY_SECONDS, Backoff

from .protocol import QUOTED

log = get_logger("netlink")

#: How long the daemon may take until it answers after its start, and later.
ANSWER_SECONDS: Final = 10.0
#: How often a running daemon has to answer.
ALIVE_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.05
#: Of one try to get an answer from a server. dnsmasq pings an address for 3 s before it offers it.
SERVER_SECONDS: Final = 4
#: The delay after which the plugin gives up, the shortest: the next pass tries again.
RESEND_SECONDS: Final = 4
_BACKOFF: Final = Backoff()
#: How a client of Go's net/rpc begins over HTTP, and what it is answered.
_HELLO: Final = b"CONNECT /_goRPC_ HTTP/1.0\n\n"
_ANSWER: Final = b"HTTP/1.0 200"
#: In the daemon's lines about a lease.
_REBOUND: Final = ": lease rebound"
_EXPIRED: Final = ": lease expired"
#: More than a line has, in bytes.
_LONGEST_LINE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Leases:
    """The daemon as plugins need it.

    ``ready`` returns the number of the daemon's run once it answers, and blocks until then; DependencyFault.
    """

    socket: Path
    ready: Callable[[], int]


class DhcpDaemon:
    """One program with its socket, whose directory is for its user alone. Methods are for the event loop's thread."""

    def __init__(self, program: Path, socket: Path) -> None:
        self.socket = socket
        self._program = program
        self._needed = trio.Event()
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self._number = 0
        self._answers = False
        #: Why it does not run, when that is not over in a moment.
        self._problem = ""
        self._last_line = ""

    @classmethod
    def of(cls, settings: Settings) -> DhcpDaemon:
        """Return the daemon of this installation."""
        return cls(settings.cni_plugin_dir / DHCP, settings.run_dir / "dhcp" / "daemon.sock")

    async def ready(self) -> int:
        """Return the number of the run once the daemon answers, starting it if need be. DependencyFault: it does not.

        Bounded by the time that it has for its first answer.
        """
        self._needed.set()
        while not self._answers:
            if self._problem:
                raise DependencyFault(self._problem)
            await self._changed.wait()
        return self._number

    def release(self) -> None:
        """End it: no interface needs it."""
        if self._needed.is_set():
            self._needed = trio.Event()
            self._answers, self._problem = False, ""
            self._scope.cancel()

    async def run(self, changed: Callable[[], None]) -> None:
        """Keep it running while it is needed. ``changed`` is called when another run answers."""
        failures, logged = 0, ""
        while True:
            await self._needed.wait()
            began, why = trio.current_time(), ""
            with trio.CancelScope() as self._scope:
                why = await self._live(changed)
            healthy = trio.current_time() - began >= HEALTHY_SECONDS
            failures = failures + 1 if why and not healthy else int(bool(why))
            answered, self._answers = self._answers, False
            if not why:
                continue
            seconds = round(_BACKOFF.delay(failures, random.random()), 1)  # noqa: S311 - a jitter
            if not answered or failures > 1:
                self._problem = f"the DHCP daemon {why}; it is started again"
            self._announce()
            if why != logged or healthy:
                log.warning(
                    "the DHCP daemon of the CNI plugins is started again",
                    message_id=message_ids.DHCP_DAEMON_ENDED,
                    why=why,
                    seconds=seconds,
                )
            logged = why
            await trio.sleep(seconds)

    def _announce(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def _live(self, changed: Callable[[], None]) -> str:
        """Run it once; return why it has to be started again, empty when that is not a failure."""
        command = [
            *(str(self._program), "daemon", "-socketpath", str(self.socket)),
            *("-timeout", f"{SERVER_SECONDS}s", "-resendmax", f"{RESEND_SECONDS}s"),
        ]
        ends: list[str] = []
        self._last_line = ""
        try:
            self.socket.parent.mkdir(parents=True, exist_ok=True)
            self.socket.parent.chmod(0o700)
            # A daemon that was killed leaves it.
            self.socket.unlink(missing_ok=True)
            async with (
                running_child(command, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}) as process,
                trio.open_nursery() as nursery,
            ):

                async def until(end: Callable[[], Awaitable[str]]) -> None:
                    ends.append(await end())
                    nursery.cancel_scope.cancel()

                nursery.start_soon(until, lambda: self._follow(process))
                nursery.start_soon(until, lambda: self._watch(changed))
        except (DependencyFault, OSError) as error:
            return f"does not start: {error}"
        finally:
            with suppress(OSError):
                self.socket.unlink(missing_ok=True)
        return ends[0]

    async def _follow(self, process: trio.Process) -> str:
        """Read its output until it binds another lease or ends; return why it ended."""
        rest = b""
        if process.stdout is not None:
            async for chunk in process.stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                rest = rest[-_LONGEST_LINE:]
                for line in lines:
                    if self._heed(one_line(line.decode(errors="replace"), QUOTED)):
                        return ""
        status = await process.wait()
        words = f": {self._last_line}" if self._last_line else ""
        return f"ended with exit status {status}{words}" if status >= 0 else f"was killed by signal {-status}"

    def _heed(self, line: str) -> bool:
        """Log what it says; return whether it has bound another lease."""
        self._last_line = line
        if _REBOUND in line:
            log.info("a DHCP server did not renew a lease: all leases are acquired again and compared", lease=line)
            return True
        if _EXPIRED in line:
            log.warning(
                "a DHCP lease has ended: its interface is made again",
                message_id=message_ids.DHCP_LEASE_ENDED,
                lease=line,
            )
        else:
            log.debug("the DHCP daemon of the CNI plugins", line=line)
        return False

    async def _watch(self, changed: Callable[[], None]) -> str:
        """Wait until it answers, then until it does not."""
        with trio.move_on_after(ANSWER_SECONDS):
            while not await self._is_answering():  # noqa: ASYNC110 - there is no event for another process's socket
                await trio.sleep(POLL_SECONDS)
            self._number, self._answers, self._problem = self._number + 1, True, ""
            self._announce()
            changed()
        while self._answers:
            await trio.sleep(ALIVE_SECONDS)
            with trio.move_on_after(ANSWER_SECONDS) as scope:
                await self._is_answering()
            if scope.cancelled_caught:
                break
        return f"did not answer within {ANSWER_SECONDS:g} s and was killed"

    async def _is_answering(self) -> bool:
        """Return whether its server of remote calls answers, or is not there yet."""
        try:
            async with await trio.open_unix_socket(str(self.socket)) as stream:
                await stream.send_all(_HELLO)
                return (await stream.receive_some(len(_ANSWER))).startswith(_ANSWER)
        except (OSError, trio.BrokenResourceError):
            return False
