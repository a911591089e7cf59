"""A node on the running kernel: the machine's own namespace is the host, a named one the router."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from actors.netlink.cni.attachments import Attachments
from actors.netlink.converge import Applied, PassResult, apply_plan, converge, observe_and_plan
from actors.netlink.kernel import Kernel, LinuxKernel, Refusal
from actors.netlink.planning.observed import ROUTE_PROTOCOL, Observed
from actors.netlink.planning.steps import Plan, Step
from actors.netlink.state_files import StateFiles
from config.desired import DesiredState
from supervisor.process.subprocesses import Completed, run_command

KEPT = {"lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0"}


def ip(*arguments: str) -> str:
    """Run iproute2 and return its output."""
    result = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    return result.stdout


def ip_json(*arguments: str) -> list[dict[str, Any]]:
    """Run iproute2 and return its JSON."""
    found: list[dict[str, Any]] = json.loads(ip("-j", "-d", *arguments) or "[]")
    return [item for item in found if item]


class Node:
    """Builds the namespaces and a NIC (one end of a veth whose other end is ``leaf``), and drives passes over them."""

    NETNS = "test-router"
    NIC = "toswitch1"

    def __init__(self, state: Path) -> None:
        self.state = state
        self.plugins = Path("/usr/lib/cni")
        self.plugin_command: tuple[str, ...] = ()
        self._kernel: LinuxKernel | None = None

    def build(self) -> None:
        self._clean_host()
        self.add_netns()
        self.add_nic()

    def add_netns(self) -> None:
        ip("netns", "add", self.NETNS)
        self.router("link", "set", "lo", "up")

    def add_nic(self, name: str = NIC, peer: str = "leaf") -> None:
        ip("link", "add", name, "type", "veth", "peer", "name", peer)
        ip("link", "set", peer, "up")
        ip("link", "set", name, "up")

    def _clean_host(self) -> None:
        subprocess.run(["ip", "netns", "del", self.NETNS], check=False, capture_output=True)
        for link in ip_json("link"):
            if link["ifname"] not in KEPT:
                subprocess.run(["ip", "link", "del", link["ifname"]], check=False, capture_output=True)
        for family in ("-4", "-6"):
            # Routes that no device takes with it: those of VRFs.
            flush = ["ip", family, "route", "flush", "table", "all", "proto", str(ROUTE_PROTOCOL)]
            subprocess.run(flush, check=False, capture_output=True)

    def close(self) -> None:
        self.crash()
        self._clean_host()

    def crash(self) -> None:
        """Drop all state in memory; the kernel and the state directory stay."""
        if self._kernel is not None:
            self._kernel.close()
        self._kernel = None

    @property
    def kernel(self) -> LinuxKernel:
        if self._kernel is None:
            files = StateFiles(self.state)
            plugins = Attachments(self.plugins, files, self._run_plugin, f"{self.NETNS}-underlay")
            self._kernel = LinuxKernel(Path("/run/netns") / self.NETNS, files, plugins=plugins)
        return self._kernel

    def _run_plugin(self, program: Path, env: Mapping[str, str], stdin: str) -> Completed:
        """Run a CNI plugin to its end."""
        command = (*self.plugin_command, str(program))
        return trio.run(partial(run_command, command, seconds=60, stdin=stdin, env=env))

    def router(self, *arguments: str) -> str:
        return ip("-n", self.NETNS, *arguments)

    def router_json(self, *arguments: str) -> list[dict[str, Any]]:
        return ip_json("-n", self.NETNS, *arguments)

    def sysctl(self, key: str) -> str:
        """Return a network sysctl of the router."""
        return ip("netns", "exec", self.NETNS, "cat", f"/proc/sys/net/{key.replace('.', '/')}").strip()

    def link(self, name: str, *, router: bool = True) -> dict[str, Any]:
        """Return one link as iproute2 reports it, independently of our code."""
        where = ("-n", self.NETNS) if router else ()
        return ip_json(*where, "link", "show", "dev", name)[0]

    def addresses(self, name: str, *, router: bool = True) -> set[str]:
        """Return a link's addresses but the kernel's own link-local ones."""
        where = ("-n", self.NETNS) if router else ()
        found = ip_json(*where, "addr", "show", "dev", name)[0]["addr_info"]
        return {f"{address['local']}/{address['prefixlen']}" for address in found if address["scope"] != "link"}

    def names(self, *, router: bool = True) -> set[str]:
        where = ("-n", self.NETNS) if router else ()
        return {link["ifname"] for link in ip_json(*where, "link")}

    def plan(self, desired: DesiredState) -> tuple[Observed, Plan]:
        return observe_and_plan(desired, self.kernel)

    def converge(self, desired: DesiredState) -> PassResult:
        return converge(desired, self.kernel)

    def apply_prefix(self, desired: DesiredState, count: int) -> Applied:
        """Carry out a plan's first steps only."""
        _, plan = self.plan(desired)
        return apply_plan(replace(plan, steps=plan.steps[:count]), self.kernel)

    def die_after(self, desired: DesiredState, count: int) -> None:
        """Converge as a process does that is killed after so many steps, in the order in which batches have them."""
        with suppress(_Killed):
            converge(desired, _MortalKernel(self.kernel, count))
        self.crash()


class _Killed(BaseException):
    """The process ends here."""


class _MortalKernel:
    """A kernel that ends the process after some steps."""

    def __init__(self, kernel: Kernel, left: int) -> None:
        self._kernel, self._left = kernel, left

    def observe(self, desired: DesiredState | None = None, known: Observed | None = None) -> Observed:
        return self._kernel.observe(desired, known)

    def apply(self, step: Step) -> None:
        self.apply_all((step,))

    def apply_all(self, batch: Sequence[Step]) -> list[Refusal | None]:
        results = self._kernel.apply_all(batch[: self._left])
        self._left -= len(results)
        if len(results) < len(batch):
            raise _Killed
        return results
