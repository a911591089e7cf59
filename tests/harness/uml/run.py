#!/usr/bin/env python3
"""Run one command as root inside a User-Mode-Linux kernel, over a Debian tree that stays untouched.

Why: the kernel and FRR tests need VRF devices, which many build hosts' kernels lack, and they need them quickly. UML
boots in about a second and runs at native speed between system calls. The tree is the machine's root (hostfs, read-
only, under an overlay in memory), its kernel Debian 13's (guestvm/kernel.py, fetched by the first run); the checkout is
at ``/checkout`` (read-only) and is the command's working directory; ``--results`` is at ``/results`` (writable, on the
host).

Promises: the command's output is streamed as it comes; the exit status is the command's own, 124 when the deadline
passed and 70 when the machine died without leaving a status; when this program ends, none of its processes is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))

from guestvm.errors import GuestError  # noqa: E402 - found by the line above
from guestvm.kernel import Kernel, ensure_kernel  # noqa: E402

#: As timeout(1) does.
STATUS_DEADLINE = 124
#: EX_SOFTWARE: the machine broke, not the command.
STATUS_MACHINE_DIED = 70
#: Time between the command's end and the machine's: a sync of a few files.
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What to boot. ``memory`` is in the kernel's notation (``2G``); ``seconds`` bounds the machine's whole life."""

    tree: Path
    command: Sequence[str]
    memory: str = "2G"
    seconds: float = 900.0
    checkout: Path = CHECKOUT
    results: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False

    def kernel_arguments(self, kernel: Kernel, work: Path) -> list[str]:
        """Return the kernel's command line; the first stage is a shell line, as nothing of ours is inside the tree."""
        first_stage = f'"mount -t hostfs -o hostfs={work} none /mnt && exec /bin/sh /mnt/init.sh boot"'
        return [
            str(kernel.program),
            f"mem={self.memory}",
            "root=/dev/root",
            "rootfstype=hostfs",
            f"rootflags={self.tree}",
            "ro",
            f"uml_dir={work}/",
            "umid=machine",
            "con=null",
            "con0=null,fd:1",
            "loglevel=8" if self.verbose else "loglevel=1",
            "init=/bin/sh",
            "--",
            "-c",
            first_stage,
        ]


def write_work_directory(work: Path, machine: Machine, kernel: Kernel) -> None:
    """Put into ``work`` what the machine reads at boot: its init, its mounts and the command."""
    shutil.copy(HERE / "init.sh", work / "init.sh")
    mounts = {
        # Not below /lib/modules in Debian's package, so they are mounted there.
        "MODULES": str(kernel.modules),
        "CHECKOUT": str(machine.checkout),
        "RESULTS": "" if machine.results is None else str(machine.results.resolve()),
    }
    (work / "environment").write_text("".join(f"{key}={shlex.quote(value)}\n" for key, value in mounts.items()))
    environment = {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OPENPEROUTER_KERNEL_TESTS": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/var/cache/hypothesis",
        **machine.environment,
    }
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in environment.items())
    (work / "command").write_text(f"{exports}exec {shlex.join(machine.command)}\n")


def needs_xstate_shim() -> bool:
    """Say whether this CPU's extended state is larger than this UML knows (see xstate_shim.c)."""
    return "amx_tile" in Path("/proc/cpuinfo").read_text().split()


def host_environment(work: Path) -> dict[str, str]:
    """Return the environment of the UML process itself; builds the shim where the CPU calls for it."""
    memory_directory = "/dev/shm" if Path("/dev/shm").is_dir() else "/tmp"
    environment = {**os.environ, "TMPDIR": memory_directory}
    if needs_xstate_shim():
        library = work / "xstate_shim.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "xstate_shim.c")], check=True)
        environment["LD_PRELOAD"] = str(library)
    return environment


def missing_parts(machine: Machine) -> str | None:
    """Return what this host lacks to boot the machine, in words for its user."""
    if needs_xstate_shim() and shutil.which("cc") is None:
        return "this CPU has AMX, so a small shim must be compiled, and there is no cc (apt-get install gcc libc6-dev)"
    if not (machine.tree / "usr/sbin").is_dir():
        return f"{machine.tree} is not a Debian tree"
    return None


def run(machine: Machine) -> int:
    """Boot, stream the console to standard output, and return the status that the module's docstring promises."""
    lacking = missing_parts(machine)
    if lacking is not None:
        print(f"uml: {lacking}", file=sys.stderr)
        return STATUS_MACHINE_DIED
    try:
        kernel = ensure_kernel()
    except GuestError as error:
        print(f"uml: {error}", file=sys.stderr)
        return STATUS_MACHINE_DIED
    if machine.results is not None:
        machine.results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="openperouter-uml-") as name:
        work = Path(name)
        write_work_directory(work, machine, kernel)
        in_time = boot(machine, kernel, work)
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((work / "status").read_text())
        if not in_time:
            print(f"uml: killed after {machine.seconds:g} s", file=sys.stderr)
            return STATUS_DEADLINE
        sys.stderr.write((work / "kernel.log").read_text(errors="replace"))
    print("uml: the machine died before the command ended (--verbose shows the kernel's messages)", file=sys.stderr)
    return STATUS_MACHINE_DIED


def boot(machine: Machine, kernel: Kernel, work: Path) -> bool:
    """Run the machine until it halts or its deadline passes; return whether it was in time. Leaves no process."""
    with (work / "kernel.log").open("wb") as log:
        process = subprocess.Popen(
            machine.kernel_arguments(kernel, work),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env=host_environment(work),
        )
    try:
        return stream(process, work / "status", time.monotonic() + machine.seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stream(process: subprocess.Popen[bytes], status: Path, deadline: float) -> bool:
    """Copy the console to standard output until it closes; return False when the deadline came first.

    A machine that has left its status but does not halt is given a few seconds and then counts as ended.
    """
    if process.stdout is None:
        raise ValueError("the machine's console is not a pipe")
    console = process.stdout.fileno()
    halted_by = deadline
    while (left := min(deadline, halted_by) - time.monotonic()) > 0:
        readable, _, _ = select.select([console], [], [], min(left, 1.0))
        if readable:
            text = os.read(console, 65536)
            if not text:
                return True
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        elif halted_by == deadline and status.exists():
            halted_by = time.monotonic() + GRACE_SECONDS
        elif process.poll() is not None:
            return True
    return halted_by != deadline


def parse(arguments: Sequence[str]) -> Machine:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Run a command as root in a User-Mode-Linux machine over a Debian tree."
    )
    parser.add_argument("--tree", type=Path, required=True, help="root of a Debian tree; stays as it is")
    parser.add_argument("--mem", default="2G", help="memory of the machine (default %(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=900.0, help="seconds until everything is killed (default %(default)s)"
    )
    parser.add_argument(
        "--checkout", type=Path, default=CHECKOUT, help="shown read-only at /checkout (default: this one)"
    )
    parser.add_argument("--results", type=Path, help="host directory shown writable at /results")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment of the command")
    parser.add_argument("--verbose", action="store_true", help="show the kernel's messages")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    options = parser.parse_args(arguments)
    return Machine(
        tree=options.tree.resolve(),
        command=options.command,
        memory=options.mem,
        seconds=options.timeout,
        checkout=options.checkout.resolve(),
        results=options.results,
        environment=dict(pair.split("=", 1) for pair in options.env),
        verbose=options.verbose,
    )


def main() -> int:
    """Run the command line's machine; a termination signal ends it as an interrupt does, so nothing is left behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(parse(sys.argv[1:]))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
