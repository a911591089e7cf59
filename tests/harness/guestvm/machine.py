"""One running guest: QEMU, its overlay disk, its console log, and a shell on it.

    with Machine.boot(ensure_image()) as machine:
        machine.remote.run("systemctl status")

Several may run at once: each has its own directory and its own forwarded port on the loopback, and a :class:`Cable`
connects two of them. QEMU dies with the process that started it (``PR_SET_PDEATHSIG``), whatever happens to that
process.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from .accelerator import accelerator
from .cache import cache_dir, locked
from .emulator import ensure_emulator
from .errors import GuestError
from .hosttools import require
from .image import Image, ensure_login_key
from .progress import say
from .remote import Remote

#: Emulated boots take 15 to 20 s on two quiet cores; one of two took 235 s beside a compiler and four busy loops. On a
#: busy machine of CI the kernel alone took 120 s.
_BOOT_SECONDS = 1800
_POWEROFF_SECONDS = 30
_DEATH_SECONDS = 2
#: Between looks at a port that does not answer yet.
_POLL_SECONDS = 0.25
#: For the ssh server's first bytes: at least so many seconds, and this part of the time since power-on. sshd executes a
#: program for each connection before it greets. A slow guest that is called again every two seconds starts ever more
#: of them, and never gets to greet.
_GREETING_SECONDS = 2
_GREETING_PART = 0.2
#: The rootfs's 10-management.network names it.
_MANAGEMENT_MAC = "52:54:00:00:00:01"
#: A second NIC, for the fabric's side of the guest: what runs on the host's loopback answers at this address of it.
UPLINK_MAC = "52:54:00:00:00:63"
UPLINK_NETWORK = "10.0.3.0/24"
UPLINK_HOST = "10.0.3.2"


@dataclass(frozen=True, slots=True)
class Cable:
    """One end of a cable between the NICs of two guests: ``mac`` is this guest's; ``near`` and ``far`` are sockets.

    Frames are datagrams between two Unix sockets. An end that is down loses what is sent to it, and either guest may
    start first and start again.
    """

    mac: str
    near: Path
    far: Path

    def nic(self) -> tuple[str, ...]:
        """Return QEMU's arguments."""
        ends = f"local.type=unix,local.path={self.near},remote.type=unix,remote.path={self.far}"
        return (
            *("-netdev", f"dgram,id=cable,{ends}"),
            *("-device", f"virtio-net-pci,netdev=cable,mac={self.mac},romfile="),
        )


class Machine:
    """A guest that runs from ``start`` to ``stop``; its disk survives a ``restart`` but not the ``with`` block.

    ``uplink`` gives it a NIC with :data:`UPLINK_MAC` as well, and ``cable`` one that leads to another guest. ``name``
    is its hostname instead of the image's; it has a machine ID of its own then, as each computer has.
    """

    def __init__(
        self,
        image: Image,
        *,
        memory: str = "2G",
        cpus: int = 2,
        uplink: bool = False,
        name: str = "",
        cable: Cable | None = None,
    ) -> None:
        require(["qemu-img", "ssh", "setpriv", "tar"])
        self._image = image
        self._memory = memory
        self._cpus = cpus
        self._uplink = uplink
        self._name = name
        self._cable = cable
        self.directory, self._alive = _claim_directory()
        self._overlay = self.directory / "overlay.qcow2"
        self._qemu: subprocess.Popen[bytes] | None = None
        self._remote: Remote | None = None
        self._port = 0
        self._powered_on = 0.0

    @classmethod
    def boot(cls, image: Image, *, memory: str = "2G", cpus: int = 2, uplink: bool = False) -> Machine:
        """Return a booted machine that answers on its shell."""
        machine = cls(image, memory=memory, cpus=cpus, uplink=uplink)
        try:
            machine.start()
        except BaseException:
            machine.discard()
            raise
        return machine

    @property
    def remote(self) -> Remote:
        """The shell on the guest."""
        if self._remote is None:
            raise GuestError("the guest is not running")
        return self._remote

    @property
    def console(self) -> Path:
        """The guest's serial console so far: kernel messages and systemd's."""
        return self.directory / "console.log"

    @property
    def died(self) -> bool:
        """Whether QEMU ended without a command to."""
        return self._qemu is not None and self._qemu.poll() is not None

    def obituary(self) -> str:
        """Return how QEMU ended unexpectedly, with the end of its log and the kernel's; nothing while it runs."""
        if self._qemu is None:
            return ""
        try:
            # A kernel that panics has its connections cut a moment before QEMU ends.
            status = self._qemu.wait(_DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        return f"QEMU ended with {status}\n{self._end_of_log()}"

    def start(self) -> None:
        """Boot and wait for the shell."""
        self.power_on()
        self.wait_for_shell()

    def power_on(self) -> None:
        """Begin to boot. Call it in a thread that lasts as long as the guest: the kernel kills QEMU when it ends."""
        if not self._overlay.exists():
            backing = str(self._image.disk)
            create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", backing, str(self._overlay)]
            subprocess.run(create, check=True)
        key = ensure_login_key()
        port = _free_port()
        # The parent-death signal ends QEMU even when this process is killed.
        command = ["setpriv", "--pdeathsig", "KILL", *self._qemu_command(port, key)]
        self._powered_on = time.monotonic()
        with (self.directory / "qemu.log").open("ab") as log:
            self._qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._remote = Remote(
            port=port, key=key, host_key=self._image.host_key, directory=self.directory, obituary=self.obituary
        )
        self._port = port

    def wait_for_shell(self) -> None:
        """Wait until a guest that was powered on answers."""
        self._wait_for_shell(self._port, self._powered_on + _BOOT_SECONDS)
        say(f"the guest is up, {time.monotonic() - self._powered_on:.0f} s after power-on")

    def stop(self) -> None:
        """Power off in an orderly way, by force when that takes too long. Idempotent."""
        if self._qemu is None:
            return
        if self._qemu.poll() is None:
            try:
                self.remote.run("systemctl poweroff --no-block", seconds=_POWEROFF_SECONDS, check=False)
                self._qemu.wait(_POWEROFF_SECONDS)
            except (GuestError, subprocess.TimeoutExpired):
                if not self.died:
                    say("the guest does not power off: pulling the plug")
        self._pull_the_plug()

    def restart(self) -> None:
        """Shut down and boot again from the same disk, as a reboot does."""
        self.stop()
        self.start()

    def discard(self) -> None:
        """Pull the plug and delete the disk: for a guest that is not needed any more. Idempotent."""
        self._pull_the_plug()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._alive.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.discard()

    def _pull_the_plug(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()
            self._qemu = None

    def _qemu_command(self, port: int, key: Path) -> list[str]:
        public_key = base64.b64encode(key.with_suffix(".pub").read_bytes()).decode()
        return [
            *(*ensure_emulator(), *accelerator(self._image.kernel), "-M", "q35", "-smp", str(self._cpus)),
            *("-m", self._memory, "-nodefaults", "-display", "none", "-no-reboot"),
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd)),
            *("-append", f"root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.show_status=no{self._identity()}"),
            # The overlay is thrown away: it need not be safe on the host's disk.
            *("-drive", f"file={self._overlay},if=virtio,format=qcow2,cache=unsafe"),
            # Restricted to the forwarded shell: else QEMU itself answers a ping that takes the default route while the
            # fabric's route is missing, with a reply that ping cannot digest.
            *("-netdev", f"user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
            *("-device", f"virtio-net-pci,netdev=management,mac={_MANAGEMENT_MAC},romfile="),
            *(self._uplink_nic() if self._uplink else ()),
            *(self._cable.nic() if self._cable else ()),
            *("-device", "virtio-rng-pci", "-serial", f"file:{self.console}"),
            *("-smbios", f"type=11,value=io.systemd.credential.binary:ssh.authorized_keys.root={public_key}"),
        ]

    def _identity(self) -> str:
        if not self._name:
            return ""
        machine_id = uuid.uuid5(uuid.NAMESPACE_DNS, self._name).hex
        return f" systemd.hostname={self._name} systemd.machine_id={machine_id}"

    @staticmethod
    def _uplink_nic() -> tuple[str, ...]:
        return (
            *("-netdev", f"user,id=uplink,net={UPLINK_NETWORK},host={UPLINK_HOST}"),
            *("-device", f"virtio-net-pci,netdev=uplink,mac={UPLINK_MAC},romfile="),
        )

    def _wait_for_shell(self, port: int, deadline: float) -> None:
        while not greets(port, self._powered_on):
            self._fail_if_dead_or_late(deadline)
            time.sleep(_POLL_SECONDS)
        # The answer is sshd's, but its key material may arrive a moment later than its socket.
        while self.remote.run("true", check=False).returncode != 0:
            self._fail_if_dead_or_late(deadline)
            time.sleep(_POLL_SECONDS)

    def _fail_if_dead_or_late(self, deadline: float) -> None:
        dead = self._qemu is None or self._qemu.poll() is not None
        if dead or time.monotonic() > deadline:
            what = "QEMU ended" if dead else f"the guest does not answer after {_BOOT_SECONDS} s"
            raise GuestError(f"{what}\n{self._end_of_log()}")

    def _end_of_log(self) -> str:
        log = (self.directory / "qemu.log").read_text(errors="replace")[-2000:]
        console = self.console.read_text(errors="replace")[-6000:] if self.console.exists() else ""
        return f"{log}\n{console}"


def _claim_directory() -> tuple[Path, TextIO]:
    """Make a machine's directory, and remove those of dead owners: an owner holds the lock on its ``alive`` file."""
    runs = cache_dir() / "run"
    runs.mkdir(exist_ok=True)
    with locked("run"):
        for marker in runs.glob("*/alive"):
            with marker.open("w") as handle, contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(marker.parent, ignore_errors=True)
        directory = Path(tempfile.mkdtemp(prefix="guest-", dir=runs))
        alive = (directory / "alive").open("w")
        fcntl.flock(alive, fcntl.LOCK_EX)
    return directory, alive


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def greets(port: int, powered_on: float) -> bool:
    """Whether an ssh server greets behind the port: QEMU itself accepts the connection from the first moment."""
    seconds = max(_GREETING_SECONDS, _GREETING_PART * (time.monotonic() - powered_on))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
