"""Running external programs: commands with a deadline, queries, and children that live as long as a block.

Each runs in its own session. Past its deadline, or when the caller is cancelled, the whole process group is killed,
grandchildren included, so that no part of it keeps writing. Only a query is left to end by itself. Output is bounded.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import BinaryIO, Final

import trio

from ..runtime.faults import DependencyFault

#: Most output of one stream, in bytes; a program that writes more is killed.
MAX_OUTPUT: Final = 64 * 1024 * 1024

#: How long a killed process may take to disappear, in seconds, before it is left to init: one that sleeps in the kernel
#: may never do so.
REAP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that ran to its end; ``returncode`` is negative for a signal. Undecodable bytes are replaced."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class CommandMissing(DependencyFault):
    """The program could not be started."""


class CommandTimeout(DependencyFault):
    """The program did not end in time; ``stdout`` and ``stderr`` hold its output until then.

    It was killed unless it is a query.
    """

    def __init__(
        self, argv: tuple[str, ...], seconds: float, stdout: str, stderr: str, *, is_query: bool = False
    ) -> None:
        super().__init__(f"{argv[0]} did not end within {seconds:g} s" + ("" if is_query else " and was killed"))
        self.argv = argv
        self.seconds = seconds
        self.stdout = stdout
        self.stderr = stderr


class CommandTooTalkative(DependencyFault):
    """The program wrote more than :data:`MAX_OUTPUT` bytes, and was killed unless it is a query."""


async def run_command(
    argv: Sequence[str],
    *,
    seconds: float,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Run a program to its end and until its output is closed, for at most ``seconds``.

    ``env`` replaces the whole environment, ``cwd`` the working directory; the program inherits the descriptors
    ``pass_fds``. Never raises for a non-zero exit; raises
    :class:`CommandMissing`, :class:`CommandTimeout` or :class:`CommandTooTalkative`, the latter two after the kill.
    """
    command = tuple(argv)
    process = await _start(command, stdin, env, cwd, pass_fds)
    output, errors = bytearray(), bytearray()
    ended = False
    try:
        with trio.move_on_after(seconds):
            ended = await _converse(process, stdin, output, errors)
    finally:
        if not ended:
            await _kill_group(process)
    if max(len(output), len(errors)) > MAX_OUTPUT:
        raise CommandTooTalkative(f"{command[0]} wrote more than {MAX_OUTPUT} bytes and was killed")
    if not ended or process.returncode is None:
        raise CommandTimeout(command, seconds, _text(output), _text(errors))
    return Completed(command, process.returncode, _text(output), _text(errors))


async def run_query(argv: Sequence[str], *, seconds: float, pass_fds: Sequence[int] = ()) -> Completed:
    """Run a program that changes nothing and must not be killed, for at most ``seconds``.

    After that, or when the caller is cancelled, it is left to end by itself, even if this process ends first: its
    output goes to files in memory, not to us. Raises like :func:`run_command`.
    """
    command = tuple(argv)
    with _memory() as output, _memory() as errors:
        try:
            process = await trio.lowlevel.open_process(
                command, stdin=DEVNULL, stdout=output, stderr=errors, pass_fds=pass_fds, start_new_session=True
            )
        except OSError as error:
            raise CommandMissing(f"cannot start {command[0]}: {error.strerror or error}") from error
        with trio.move_on_after(seconds):
            await process.wait()
        texts = []
        for file in (output, errors):
            if os.fstat(file.fileno()).st_size > MAX_OUTPUT:
                raise CommandTooTalkative(f"{command[0]} wrote more than {MAX_OUTPUT} bytes")
            texts.append(os.pread(file.fileno(), MAX_OUTPUT, 0).decode(errors="replace"))
    if process.returncode is None:
        raise CommandTimeout(command, seconds, *texts, is_query=True)
    return Completed(command, process.returncode, *texts)


def _memory() -> BinaryIO:
    return os.fdopen(os.memfd_create("output", os.MFD_CLOEXEC), "w+b")


@asynccontextmanager
async def running_child(argv: Sequence[str], *, env: Mapping[str, str]) -> AsyncIterator[trio.Process]:
    """Run a program until the block ends, then kill its group. Raises :class:`CommandMissing`.

    Its ``stdout`` is a pipe with both of its outputs, which the block has to read. Nothing ends it when this process is
    killed: that is up to systemd, which kills what is left of the unit.
    """
    try:
        process = await trio.lowlevel.open_process(
            argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=env, start_new_session=True
        )
    except OSError as error:
        raise CommandMissing(f"cannot start {argv[0]}: {error.strerror or error}") from error
    try:
        yield process
    finally:
        await _kill_group(process)


def _text(data: bytearray) -> str:
    return data.decode(errors="replace")


async def _start(
    command: tuple[str, ...],
    stdin: str | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    pass_fds: Sequence[int],
) -> trio.Process:
    try:
        return await trio.lowlevel.open_process(
            command,
            stdin=DEVNULL if stdin is None else PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandMissing(f"cannot start {command[0]}: {error.strerror or error}") from error


async def _converse(process: trio.Process, stdin: str | None, output: bytearray, errors: bytearray) -> bool:
    """Exchange input and output with a process; return whether it has ended: False if it writes too much."""
    async with trio.open_nursery() as nursery:
        if stdin is not None:
            nursery.start_soon(_feed, process, stdin.encode())
        nursery.start_soon(_collect, process.stdout, output)
        nursery.start_soon(_collect, process.stderr, errors)
    if max(len(output), len(errors)) > MAX_OUTPUT:
        return False
    # Only now: while the leader is not waited for its id cannot be reused, so killing the group hits no other process.
    await process.wait()
    return True


async def _feed(process: trio.Process, data: bytes) -> None:
    if process.stdin is None:
        return
    async with process.stdin:
        try:
            await process.stdin.send_all(data)
        except trio.BrokenResourceError:
            # A program need not read all of its input: its exit code says whether it succeeded.
            return


async def _collect(stream: trio.abc.ReceiveStream | None, into: bytearray) -> None:
    if stream is None:
        return
    async with stream:
        async for chunk in stream:
            into.extend(chunk)
            if len(into) > MAX_OUTPUT:
                return


async def _kill_group(process: trio.Process) -> None:
    """Kill a process that was not waited for, with its whole group, and wait for it, bounded."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    with trio.CancelScope(shield=True):
        with trio.move_on_after(REAP_SECONDS):
            await process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                await trio.aclose_forcefully(stream)
