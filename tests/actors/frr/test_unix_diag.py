"""Connections whose client is gone are told from those whose client lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from actors.frr.unix_diag import abandoned


@pytest.fixture
def server(tmp_path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(tmp_path / "mgmtd.vty"))
    made.listen()
    return made


def test_only_the_connection_without_a_client_counts(tmp_path: Path, server: socket.socket) -> None:
    path = tmp_path / "mgmtd.vty"
    with server, socket.socket(socket.AF_UNIX) as living, socket.socket(socket.AF_UNIX) as dying:
        living.connect(str(path))
        dying.connect(str(path))
        with server.accept()[0], server.accept()[0] as left:
            assert abandoned(path) == frozenset()
            dying.close()
            assert abandoned(path) == {os.fstat(left.fileno()).st_ino}
            assert abandoned(tmp_path / "elsewhere" / "mgmtd.vty") == frozenset()


def test_another_way_to_the_same_socket_finds_it(tmp_path: Path, server: socket.socket) -> None:
    # FRR may be told /var/run/frr and we /run/frr.
    (tmp_path / "link").symlink_to(tmp_path)
    with server, socket.socket(socket.AF_UNIX) as dying:
        dying.connect(str(tmp_path / "mgmtd.vty"))
        with server.accept()[0]:
            dying.close()
            assert len(abandoned(tmp_path / "link" / "mgmtd.vty")) == 1


def test_many_connections_are_all_seen(tmp_path: Path, server: socket.socket) -> None:
    # More than one message of the kernel's holds.
    pairs = [socket.socketpair() for _ in range(400)]
    with server, socket.socket(socket.AF_UNIX) as dying:
        dying.connect(str(tmp_path / "mgmtd.vty"))
        with server.accept()[0]:
            dying.close()
            assert len(abandoned(tmp_path / "mgmtd.vty")) == 1
    for one, other in pairs:
        one.close()
        other.close()
