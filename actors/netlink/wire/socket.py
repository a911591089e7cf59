"""One rtnetlink socket of one namespace: requests that raise typed errors, dumps that are whole.

A socket belongs to the namespace in which it was opened, and to the thread that opened it (see ``namespace_thread``).
"""

from __future__ import annotations

import errno
import os
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkDumpInterrupted, NetlinkError
from pyroute2.netlink.rtnl import RTM_NEWADDR
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

from supervisor.runtime.faults import KernelFault

SOL_SOCKET = 1
#: socket(7): like SO_RCVBUF, beyond rmem_max, with CAP_NET_ADMIN.
SO_RCVBUFFORCE = 33
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
    """An address message with the attributes that pyroute2 0.7.7 does not know yet (linux/if_addr.h)."""

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


class RouteSocket:
    """A socket for requests and dumps; never subscribed to anything, so its buffer holds only answers."""

    def __init__(self) -> None:
        self._route = IPRoute(strict_check=True, ext_ack=True)
        # pyroute2 0.9 reads this in nlm_request, but its IPRoute does not set it; 0.7 has no such thing.
        status = getattr(self._route, "status", None)
        if status is not None:
            status.setdefault("nlm_generator", True)
        self._route.register_policy({RTM_NEWADDR: MarkedAddress})
        try:
            self._route.setsockopt(SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        except PermissionError:
            # Only a larger buffer than allowed needs the capability; dumps are paced by the kernel anyway.
            self._route.setsockopt(SOL_SOCKET, 8, RECEIVE_BUFFER)

    def request(self, message: Any, kind: int, flags: int = REQUEST) -> list[Any]:
        """Send one request and return the answers; raise KernelRefusal when the kernel says no."""
        try:
            return list(self._route.nlm_request(message, msg_type=kind, msg_flags=flags))
        except NetlinkError as error:
            raise KernelRefusal(error.code, _words(error)) from error

    def dump(self, build: Any, kind: int) -> list[Any]:
        """Return all objects of a kind; ``build`` makes a new request message for each attempt."""
        for _ in range(DUMP_ATTEMPTS):
            try:
                return list(self._route.nlm_request(build(), msg_type=kind, msg_flags=NLM_F_REQUEST | NLM_F_DUMP))
            except NetlinkDumpInterrupted:
                continue
            except NetlinkError as error:
                raise KernelRefusal(error.code, _words(error)) from error
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
        raise KernelRefusal(errno.EINTR, f"{DUMP_ATTEMPTS} dumps in a row were interrupted by changes")

    def close(self) -> None:
        """Close the socket."""
        self._route.close()


def _words(error: NetlinkError) -> str:
    """Return the kernel's words: its extended message when it gave one, else the error's name."""
    text = str(error.args[1]) if len(error.args) > 1 else ""
    return text or (os.strerror(error.code) if error.code > 0 else str(error))
