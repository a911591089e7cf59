"""Starts and stops real FRR daemons, each instance in a network namespace of its own.

An instance is the distribution's FRR as a pathspace instance would be: the same paths, users and options, without
systemd. It has watchfrr only if a test asks for it; otherwise the test decides which daemon lives.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DAEMONS: Final = ("zebra", "mgmtd", "bgpd", "bfdd", "staticd")
DAEMON_DIR: Final = Path("/usr/lib/frr")
ETC: Final = Path("/etc/frr")
RUN: Final = Path("/run/frr")
#: What mgmtd answers to a session while another holds its lock.
LOCKED: Final = "locked by another session"
#: What bgpd answers to a route target that it has derived by itself, since it got the VRF's VNI first: mgmtd gets its
#: part of a file at the same time.
HAS_TARGET: Final = "RT specified already configured for this VRF"
PACKAGED_DAEMONS: Final = Path(__file__).parents[2] / "packaging/frr/perouter/daemons"


def sh(command: str, *, check: bool = True) -> str:
    """Run a shell command and return what it prints."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300, check=False)  # noqa: S602
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def eventually(what: str, check: Callable[[], bool], seconds: float = 180.0) -> None:
    """Wait until a condition of the outside world holds, which has no event; the machine may be busy."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.1)


@dataclass(frozen=True)
class FrrInstance:
    """One FRR in the network namespace and pathspace ``name``; ``alive`` are the daemons that a test has not killed."""

    name: str
    alive: dict[str, int] = field(default_factory=dict)

    @property
    def enter(self) -> str:
        """What runs a command where the daemons run."""
        return f"ip netns exec {self.name}"

    @property
    def conf(self) -> Path:
        return ETC / self.name / "frr.conf"

    def prepare(self) -> None:
        """Make its directories as the package's unit would."""
        for directory in (RUN, ETC / self.name, RUN / self.name):
            directory.mkdir(parents=True, exist_ok=True)
            shutil.chown(directory, "frr", "frr")
            directory.chmod(0o755)
        ETC.chmod(0o755)
        (ETC / self.name / "vtysh.conf").write_text("service integrated-vtysh-config\n")

    def start(self, *daemons: str) -> None:
        """Start daemons, all by default, and wait until vtysh reaches them."""
        wanted = daemons or DAEMONS
        for daemon in wanted:
            command = f"{DAEMON_DIR / daemon} -N {self.name} -d -A 127.0.0.1"
            # A daemon keeps its standard output open: with a pipe there, waiting for its end would never end.
            sh(f"{self.enter} {command} </dev/null >/dev/null 2>&1")
        eventually(f"{wanted} answer", lambda: set(wanted) <= set(self.vtysh("show daemons").split()))
        self.alive.update((daemon, self.pid(daemon)) for daemon in wanted)

    def start_watched(self) -> None:
        """Start all daemons as the package's unit does: under watchfrr, which starts those again that end."""
        shutil.copy(PACKAGED_DAEMONS, ETC / self.name / "daemons")
        self.conf.touch()
        shutil.chown(self.conf, "frr", "frr")
        sh(f"{self.enter} {DAEMON_DIR}/frrinit.sh start {self.name} </dev/null >/dev/null 2>&1")
        eventually("all daemons answer", lambda: set(DAEMONS) <= set(self.vtysh("show daemons").split()))

    def boot(self, daemon: str) -> None:
        """Send a daemon the configuration on disk, as FRR's start script does."""
        sh(f"vtysh -N {self.name} -b -d {daemon}")

    def pid(self, daemon: str) -> int:
        return int((RUN / self.name / f"{daemon}.pid").read_text())

    def kill(self, daemon: str, number: int = signal.SIGKILL) -> None:
        """Signal a daemon; after a fatal signal wait for its end."""
        pid = self.pid(daemon)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.alive.pop(daemon, None)
            eventually(f"{daemon} is gone", lambda: not is_alive(pid))
            (RUN / self.name / f"{daemon}.pid").unlink(missing_ok=True)

    def dead(self) -> list[str]:
        """Return the daemons that died by themselves, but for mgmtd, which the router ends when it stays locked."""
        return [daemon for daemon, pid in self.alive.items() if daemon != "mgmtd" and not is_alive(pid)]

    def stop(self) -> None:
        """End all daemons and remove what they leave."""
        # watchfrr first: it would start the others again.
        for daemon in ("watchfrr", *DAEMONS):
            if (RUN / self.name / f"{daemon}.pid").exists() and is_alive(self.pid(daemon)):
                self.kill(daemon)
        shutil.rmtree(RUN / self.name, ignore_errors=True)
        shutil.rmtree(ETC / self.name, ignore_errors=True)

    def vtysh(self, *commands: str) -> str:
        return self._unlocked(" ".join(f"-c '{command}'" for command in commands))

    def load(self, path: Path | None = None, daemon: str = "") -> None:
        """Send all daemons, or one, a file, by default the instance's configuration; each line must be taken."""
        path = path or self.conf
        shown = sh(f"vtysh -N {self.name} {f'-d {daemon} ' if daemon else ''}-f {path}", check=False).splitlines()
        if any(LOCKED in line for line in shown):
            # Only mgmtd has left out its part.
            shown = [line for line in shown if LOCKED not in line]
            shown += self._unlocked(f"-d mgmtd -f {path}").splitlines()
        assert not [line for line in shown if "%" in line and HAS_TARGET not in line], "\n".join(shown)

    def _unlocked(self, options: str) -> str:
        """Run vtysh until mgmtd has the lock free for it: it may hold a session's for a while after its shell's end."""
        shown = ""

        def was_unlocked() -> bool:
            nonlocal shown
            shown = sh(f"vtysh -N {self.name} {options}", check=False)
            return LOCKED not in shown

        eventually(f"mgmtd of {self.name} is not locked", was_unlocked)
        return shown


@dataclass
class PingCount:
    """What became of pings; the counts are those of a run that has ended."""

    sent: int = 0
    received: int = 0
    output: str = ""


@contextmanager
def pinging(netns: str, arguments: str) -> Iterator[PingCount]:
    """Ping from a namespace meanwhile, with these arguments; each ping waits two seconds for its reply."""
    pings = PingCount()
    command = ["ip", "netns", "exec", netns, "ping", "-n", "-W", "2", *arguments.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield pings
        finally:
            process.send_signal(signal.SIGINT)
            pings.output, _ = process.communicate(timeout=60)
    counts = re.findall(r"(\d+) (?:packets transmitted|received)", pings.output)
    pings.sent, pings.received = map(int, counts)


def is_alive(pid: int) -> bool:
    """Return whether anything is left of a process: its sockets are open until the last of its threads has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" or len(threads) > 1


def until_a_port(frr: str, link: str) -> None:
    """Wait until zebra knows that a link is a bridge's port.

    FRR 10.3's reads links in one thread and MACs in another, and drops a MAC whose port it does not know yet.
    """
    command = f"vtysh -N {frr} -d zebra -c 'show interface {link} json'"
    eventually(
        f"zebra of {frr} knows {link} as a port",
        lambda: json.loads(sh(command) or "{}").get(link, {}).get("interfaceSlaveType") == "Bridge",
    )


@contextmanager
def namespace(name: str) -> Iterator[str]:
    """A network namespace with loopback up, gone afterwards."""
    sh(f"ip netns add {name} && ip -n {name} link set lo up")
    try:
        yield name
    finally:
        sh(f"ip netns del {name}", check=False)


@contextmanager
def running_frr(name: str, *, start: bool = True, watched: bool = False) -> Iterator[FrrInstance]:
    """A namespace with a fresh FRR in it."""
    with namespace(name):
        instance = FrrInstance(name)
        instance.prepare()
        try:
            if watched:
                instance.start_watched()
            elif start:
                instance.start()
            yield instance
            assert not instance.dead(), f"{name}: {instance.dead()} died"
        finally:
            instance.stop()
