"""What the harness itself promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .harness import eventually, is_alive

#: Ends its first thread, so that the process is a zombie, while the second one still has its files.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("started", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_is_alive_until_its_last_thread_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        eventually("its first thread is gone", lambda: _state(process.pid) == "Z")
        alive = is_alive(process.pid)
        process.kill()
        assert alive
        eventually("all of it is gone", lambda: not is_alive(process.pid))


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
