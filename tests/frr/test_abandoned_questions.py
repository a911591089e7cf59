"""A daemon survives that we stop listening while it prints a long answer; FRR 10.3 dies when the session has ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import trio

from actors.lib.frr.daemon_socket import DaemonSockets

from .harness import RUN, FrrInstance

#: ``show running-config`` of so many takes a megabyte, well above the 128 KiB after which FRR 10.3 sends a part.
LISTS = 20_000


async def test_bgpd_survives_a_question_that_is_given_up(frr: FrrInstance, tmp_path: Path) -> None:
    file = tmp_path / "lists.conf"
    file.write_text("".join(f"bgp community-list standard list{number} permit 64512:1\n" for number in range(LISTS)))
    frr.load(file, "bgpd")
    daemons, bgpd = DaemonSockets(RUN / frr.name), frr.pid("bgpd")
    assert len(await daemons.text("show running-config", daemon="bgpd")) > 1 << 20
    async with daemons.session("bgpd") as session:
        os.kill(bgpd, signal.SIGSTOP)
        with trio.move_on_after(0.5) as given_up:
            await session.texts(["show running-config"])
    assert given_up.cancelled_caught
    os.kill(bgpd, signal.SIGCONT)
    assert "list1" in await daemons.text("show running-config", daemon="bgpd")
    assert frr.dead() == []
