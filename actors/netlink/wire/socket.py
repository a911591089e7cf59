"""One rtnetlink socket of one namespace: requests that raise typed errors, and complete dumps.

A socket belongs to the namespace in which it was opened, and to the thread that opened it (:mod:`.namespace`).
"""

from __future__ import annotations

import errno
import os
from socket import SO_RCVBUF, SOL_SOCKET
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkDumpInterrupted, NetlinkError
from pyroute2.netlink.rtnl import RTM_NEWADDR
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

from supervisor.runtime.faults import KernelFault

#: socket(7): like SO_RCVBUF, beyond rmem_max, with CAP_NET_ADMIN.
SO_RCVBUFFORCE = 33
#: One VXLAN and bridge pair emits 17.5 KiB of notifications; this holds those of several hundred.
RECEIVE_BUFFER = 16 << 20
#: A dump that the kernel marks as inconsistent is repeated: under constant change there is no perfect one.
DUMP_ATTEMPTS = 8

REQUEST = NLM_F_REQUEST | NLM_F_ACK
CREATE = REQUEST | NLM_F_CREATE | NLM_F_EXCL


class KernelRefusal(KernelFault):
    """The kernel answered a request with an error. ``errno`` is positive."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or os.strerror(number))
        self.errno = number


class MarkedAddress(ifaddrmsg):  # type: ignore[misc]
    """An address message with the attributes that pyroute2 0.7.7 lacks (linux/if_addr.h)."""

    nla_map = (
        ("IFA_UNSPEC", "hex"),
        ("IFA_ADDRESS", "ipaddr"),
        ("IFA_LOCAL", "ipaddr"),
        ("IFA_LABEL", "asciiz"),
        ("IFA_BROADCAST", "ipaddr"),
        ("IFA_ANYCAST", "ipaddr"),
        ("IFA_CACHEINFO", "cacheinfo"),
        ("IFA_MULTICAST", "ipaddr"),
        ("IFA_FLAGS", "uint32"),
        ("IFA_RT_PRIORITY", "uint32"),
        ("IFA_TARGET_NETNSID", "int32"),
        ("IFA_PROTO", "uint8"),
    )


def enlarge_buffer(socket: Any) -> None:
    """Give a socket a large receive buffer, as large as allowed for a process without CAP_NET_ADMIN."""
    try:
        socket.setsockopt(SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except PermissionError:
        socket.setsockopt(SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER)


class RouteSocket:
    """A socket for requests and dumps, without subscriptions, so its buffer holds answers only."""

    def __init__(self) -> None:
        self._route = IPRoute(strict_check=True, ext_ack=True)
        # pyroute2 0.9 reads this in nlm_request, but its IPRoute does not set it; 0.7 has no such attribute.
        status = getattr(self._route, "status", None)
        if status is not None:
            status.setdefault("nlm_generator", True)
        self._route.register_policy({RTM_NEWADDR: MarkedAddress})
        enlarge_buffer(self._route)

    def request(self, message: Any, kind: int, flags: int = REQUEST) -> list[Any]:
        """Send one request and return the answers; KernelRefusal when the kernel answers with an error."""
        try:
            return list(self._route.nlm_request(message, msg_type=kind, msg_flags=flags))
        except NetlinkError as error:
            raise KernelRefusal(error.code, _message_of(error)) from error

    def dump(self, build: Any, kind: int) -> list[Any]:
        """Return all objects of a kind; ``build`` makes a new request message for each attempt."""
        for _ in range(DUMP_ATTEMPTS):
            try:
                return list(self._route.nlm_request(build(), msg_type=kind, msg_flags=NLM_F_REQUEST | NLM_F_DUMP))
            except NetlinkDumpInterrupted:
                continue
            except NetlinkError as error:
                raise KernelRefusal(error.code, _message_of(error)) from error
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
        raise KernelRefusal(errno.EINTR, f"{DUMP_ATTEMPTS} dumps in a row were interrupted by changes")

    def close(self) -> None:
        """Close the socket."""
        self._route.close()


def _message_of(error: NetlinkError) -> str:
    """Return the kernel's extended error message if it sent one, else the error's name."""
    text = str(error.args[1]) if len(error.args) > 1 else ""
    return text or (os.strerror(error.code) if error.code > 0 else str(error))
