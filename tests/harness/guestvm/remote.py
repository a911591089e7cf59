"""A shell on the guest: commands, files in, files out, over one kept ssh connection.

A login costs a second on an emulated machine, a command over the kept connection a tenth of that: so one master
connection is opened and everything goes through it. Still, one script with ten commands beats ten commands.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .errors import GuestError

#: Ends what hangs. A second of work on a quiet machine has taken over a minute on an emulated one beside other work.
_COMMAND_SECONDS = 300
#: ssh's own exit status when there is no connection, or not any more.
_NO_CONNECTION = 255


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command on the guest did: exit status and text of both outputs."""

    command: str
    returncode: int
    stdout: str
    stderr: str

    def checked(self) -> Completed:
        """Return this, or raise :class:`GuestError` with both outputs when the status is not 0."""
        if self.returncode != 0:
            raise GuestError(
                f"on the guest: {self.command!r} ended with {self.returncode}\n"
                f"{self.stdout[-4000:]}{self.stderr[-4000:]}"
            )
        return self


class Remote:
    """An ssh connection to root on ``127.0.0.1:port``; ``directory`` (private) holds its socket and known hosts.

    ``obituary`` returns why the machine behind it is dead, or nothing while it lives: a command that a dead machine did
    not answer fails with that. ``options`` are those that ssh, and what runs ssh by itself, needs for 127.0.0.1.
    """

    def __init__(
        self, *, port: int, key: Path, host_key: str, directory: Path, obituary: Callable[[], str] = str
    ) -> None:
        self._obituary = obituary
        known_hosts = directory / "known_hosts"
        known_hosts.write_text(f"guest {host_key}\n")
        self.options = [
            *("-F", "none", "-o", f"Port={port}", "-o", f"IdentityFile={key}", "-o", "User=root"),
            *("-o", f"UserKnownHostsFile={known_hosts}", "-o", "HostKeyAlias=guest", "-o", "StrictHostKeyChecking=yes"),
            *("-o", "GlobalKnownHostsFile=none", "-o", "HostKeyAlgorithms=ssh-ed25519"),
            *("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"),
            *("-o", "KexAlgorithms=curve25519-sha256", "-o", "ConnectTimeout=120", "-o", "ServerAliveInterval=120"),
            *("-o", "ControlMaster=auto", "-o", "ControlPersist=yes", "-o", f"ControlPath={directory / 'ssh.sock'}"),
        ]

    def argv(self, command: str, *, terminal: bool = False) -> list[str]:
        """Return the host's command line that runs ``command`` on the guest; with ``terminal`` for a person."""
        return ["ssh", *(["-t"] if terminal else ["-T"]), *self.options, "127.0.0.1", command]

    def run(
        self, command: str, *, seconds: float = _COMMAND_SECONDS, stdin: str | None = None, check: bool = True
    ) -> Completed:
        """Run a shell command on the guest within ``seconds``; with ``check``, a failure is a :class:`GuestError`."""
        done = self._communicate(command, seconds=seconds, stdin=None if stdin is None else stdin.encode())
        completed = Completed(
            command, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        return completed.checked() if check else completed

    def copy_in(self, source: Path, target: str, *, seconds: float = _COMMAND_SECONDS) -> None:
        """Copy what is in a directory of the host into ``target`` on the guest: owner root, modes and times kept."""
        archive = subprocess.run(
            ["tar", "-C", str(source), "--owner=0", "--group=0", "--numeric-owner", "-cf", "-", "."],
            capture_output=True,
            check=True,
        ).stdout
        where = shlex.quote(target)
        # The staging directory's own mode must not become the target's (it may be /).
        command = f"mkdir -p {where} && tar -C {where} --no-overwrite-dir --keep-directory-symlink -xf -"
        done = self._communicate(command, seconds=seconds, stdin=archive)
        if done.returncode != 0:
            raise GuestError(f"copying {source} to the guest's {target} failed: {done.stderr.decode(errors='replace')}")

    def copy_out(self, source: str, target: Path, *, seconds: float = _COMMAND_SECONDS) -> None:
        """Copy the contents of a directory of the guest into a directory of the host."""
        done = self._communicate(f"tar -C {shlex.quote(source)} -cf - .", seconds=seconds, stdin=None)
        if done.returncode != 0:
            raise GuestError(f"copying the guest's {source} failed: {done.stderr.decode(errors='replace')}")
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-C", str(target), "--no-same-owner", "-xf", "-"], input=done.stdout, check=True)

    def close(self) -> None:
        """End the kept connection."""
        subprocess.run(["ssh", *self.options, "-O", "exit", "127.0.0.1"], capture_output=True, timeout=10, check=False)

    def _communicate(self, command: str, *, seconds: float, stdin: bytes | None) -> subprocess.CompletedProcess[bytes]:
        try:
            done = subprocess.run(
                self.argv(command),
                input=b"" if stdin is None else stdin,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GuestError(f"on the guest: {command!r} was not done after {seconds:g} s") from error
        if done.returncode == _NO_CONNECTION and (why := self._obituary()):
            raise GuestError(f"the guest died, and with it {command!r}: {why}")
        return done
