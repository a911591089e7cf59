"""A person at a terminal of the guest: a command on a pty over ssh, whose questions are answered as they come."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time

from guestvm.machine import Machine


class Terminal:
    """One command on a terminal; ``text`` is all that it has shown, ``code`` its exit code once it has ended."""

    def __init__(self, node: Machine, command: str) -> None:
        self.text = ""
        self._answered = 0
        self._ours, theirs = pty.openpty()
        argv = node.remote.argv(command, terminal=True)
        self._process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)

    def answer(self, question: str, answer: str, *, seconds: float = 120) -> None:
        """Type a line once the question, a pattern, is there; fail the test after ``seconds``."""
        deadline = time.monotonic() + seconds
        while not (found := re.compile(question).search(self.text, self._answered)):
            assert time.monotonic() < deadline, f"not asked within {seconds:g} s: {question}\n{self.text}"
            assert self._read(), f"ended without asking {question}:\n{self.text}"
        self._answered = found.end()
        os.write(self._ours, f"{answer}\n".encode())

    def end(self, *, seconds: float = 120) -> int:
        """Return the exit code; fail the test when the command does not end in time."""
        deadline = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < deadline, f"has not ended within {seconds:g} s:\n{self.text}"
        os.close(self._ours)
        return self._process.wait(seconds)

    def _read(self) -> bool:
        """Take what is shown, for a second at most; return False at the end, which a pty reports as an error."""
        if not select.select([self._ours], [], [], 1.0)[0]:
            return True
        try:
            shown = os.read(self._ours, 65536)
        except OSError:
            return False
        self.text += shown.decode(errors="replace")
        return bool(shown)
