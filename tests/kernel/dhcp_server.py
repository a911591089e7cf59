"""A DHCP server (RFC 2131) of tests: gives each client the address that a file has at that moment.

As a program it serves the interface ARGV[1]. ARGV[2] is a JSON file with ``server`` (its own address), ``address``,
``seconds`` (of the lease), and ``renew`` (T1, after which a client asks again); an empty address: no answer. Each
message is a line in ARGV[3].
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

DISCOVER, OFFER, REQUEST, ACK, NAK, RELEASE = 1, 2, 3, 5, 6, 7
NAMES: Final = {1: "DISCOVER", 2: "OFFER", 3: "REQUEST", 5: "ACK", 6: "NAK", 7: "RELEASE"}
COOKIE: Final = bytes([99, 130, 83, 99])
SERVER: Final = "192.0.2.1"
WAIT_SECONDS: Final = 60.0


def options_of(message: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 240
    while at < len(message) and message[at] != 255:
        if message[at] == 0:
            at += 1
            continue
        length = message[at + 1]
        found[message[at]] = message[at + 2 : at + 2 + length]
        at += 2 + length
    return found


def answer(request: bytes, kind: int, said: dict[str, Any]) -> bytes:
    """Return an answer: a BOOTP reply with the request's transaction and hardware address."""
    server = IPv4Address(said["server"]).packed
    address = bytes(4) if kind == NAK else IPv4Address(said["address"]).packed
    head = b"\x02" + request[1:12] + bytes(4) + address + server + request[24:28] + request[28:44] + bytes(192)
    options = {53: bytes([kind]), 54: server}
    if kind != NAK:
        times = {51: said["seconds"], 58: said["renew"], 59: said["renew"] + 1}
        options |= {1: IPv4Address("255.255.255.0").packed, 3: server}
        options |= {code: struct.pack("!I", value) for code, value in times.items()}
    return head + COOKIE + b"".join(bytes([code, len(data)]) + data for code, data in options.items()) + b"\xff"


def serve(interface: str, config: Path, log: Path) -> None:
    """Answer until the process is killed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        server.bind(("", 67))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            request = server.recv(4096)
            options = options_of(request)
            said = json.loads(config.read_text())
            [kind] = options[53]
            line = [NAMES.get(kind, str(kind)), options.get(61, b"")[1:].decode()]
            if said["address"] and kind in {DISCOVER, REQUEST}:
                given = IPv4Address(said["address"])
                asked = options.get(50) or request[12:16]
                reply = OFFER if kind == DISCOVER else ACK if asked == given.packed else NAK
                line += [NAMES[reply], str(given)]
                server.sendto(answer(request, reply, said), ("255.255.255.255", 68))
            with log.open("a") as file:
                file.write(" ".join(line) + "\n")


def offer(address: str, *, server: str = SERVER, seconds: int = 3600, renew: int = 1800) -> str:
    """Return what the server's file says."""
    return json.dumps({"server": server, "address": address, "seconds": seconds, "renew": renew})


class DhcpServer:
    """A running server, seen from its test."""

    def __init__(self, directory: Path) -> None:
        self.config, self.log = directory / "dhcp.json", directory / "dhcp.log"
        self.log.touch()
        self.give("192.0.2.50")

    def give(self, address: str, *, seconds: int = 3600, renew: int = 1800) -> None:
        """Answer with another address from now on, or not at all."""
        new = self.config.with_suffix(".new")
        new.write_text(offer(address, seconds=seconds, renew=renew))
        new.replace(self.config)

    def count(self, word: str) -> int:
        """Return how many messages there were of a kind, or answers."""
        return sum(word in line.split() for line in self.log.read_text().splitlines())

    def await_another(self, word: str, before: int) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while self.count(word) <= before:
            assert time.monotonic() < deadline, f"no {word}:\n{self.log.read_text()}"
            time.sleep(0.05)


@contextmanager
def dhcp_server(namespace: str, interface: str, directory: Path) -> Iterator[DhcpServer]:
    """Run a server in a namespace."""
    server = DhcpServer(directory)
    command = ["ip", "netns", "exec", namespace, sys.executable, __file__, interface]
    with subprocess.Popen(
        [*command, str(server.config), str(server.log)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield server
        finally:
            process.kill()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
