"""From any running configuration to any other: random walks on real FRR.

Whatever FRR runs, also after an apply that was killed midway and after bgpd's own restart: a valid configuration is
applied and verified, FRR shows what a fresh FRR shows of it, and applying it again writes nothing. Where the kernel has
VRF devices the L3VNIs are up, so that FRR derives route targets, and those in force are the configured ones.

``OPENPEROUTER_WALK_SECONDS`` is the length, ``OPENPEROUTER_WALK_SEED`` repeats a walk.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from actors.frr.apply import Applier
from actors.frr.diff.difference import parse
from actors.frr.driver import VtyshDriver
from actors.frr.render.render import render
from config.desired import DesiredL3VNI, DesiredState
from supervisor.runtime.faults import DependencyFault

from .conftest import kernel_has_vrf, settings_for
from .harness import DAEMONS, FrrInstance, eventually, running_frr, sh
from .random_states import VRFS, Walk
from .router import vrf_with_vni
from .test_apply import HOST, Bench

SECONDS = float(os.environ.get("OPENPEROUTER_WALK_SECONDS", "60"))
SEED = int(os.environ.get("OPENPEROUTER_WALK_SEED", "1" if os.environ.get("CI") else time.time_ns() % 100000))

#: What bgpd has in force of an L3VNI: its imported and exported route targets and its route distinguisher.
InForce = tuple[set[str], set[str], str]


class MortalDriver(VtyshDriver):
    """Sends as many lines as it may, and then ends as a process that is killed does."""

    lines: int | None = None
    writes = 0

    async def send(self, commands: str) -> str:
        self.writes += 1
        if self.lines is None:
            return await super().send(commands)
        lines = commands.splitlines(keepends=True)
        complaints = await super().send("".join(lines[: self.lines]))
        self.lines -= len(lines)
        if self.lines <= 0:
            raise DependencyFault("killed")
        return complaints


@dataclass
class Walker:
    """Takes one FRR from configuration to configuration; a second one is started for a single one each time."""

    bench: Bench
    driver: MortalDriver
    fresh: Bench
    live: bool
    draw: Random

    async def step(self, walk: Walk) -> None:
        desired = walk.step()
        if self.draw.random() < 0.2:
            self.driver.lines = self.draw.randint(1, 60)
            await self.bench.apply(desired)
            self.driver.lines = None
            desired = walk.step()
        await self.bench.applied(desired)
        before = self.driver.writes
        assert not (await self.bench.applied(desired)).changed
        assert self.driver.writes == before
        if self.live:
            self.make_devices(desired)
        if self.draw.random() < 0.1:
            await self.restart_bgpd(desired)
        if self.live:
            self.check_in_force(desired)
        if self.draw.random() < 0.1:
            await self.compare_with_fresh(desired)

    def make_devices(self, desired: DesiredState) -> None:
        """Make and remove the devices that the kernel side of the router would; VRFs stay."""
        netns = self.bench.frr.name
        wanted = {f"{prefix}{vni.vni}" for vni in desired.l3vnis for prefix in ("vni", "br-pe-")}
        links = [line.split(": ")[1].split("@")[0] for line in sh(f"ip -n {netns} -o link").splitlines()]
        for link in {link for link in links if link.startswith(("vni", "br-pe-"))} - wanted:
            sh(f"ip -n {netns} link del {link}", check=False)
        for vni in desired.l3vnis:
            if f"vni{vni.vni}" in links:
                sh(f"ip -n {netns} link set br-pe-{vni.vni} master {vni.vrf}")
            else:
                vrf_with_vni(netns, str(vni.vtep), vni.vni, vni.vrf, 1100 + VRFS.index(vni.vrf))

    async def restart_bgpd(self, desired: DesiredState) -> None:
        frr = self.bench.frr
        frr.kill("bgpd")
        frr.start("bgpd")
        frr.boot("bgpd")
        await self.bench.applied(desired)

    def check_in_force(self, desired: DesiredState) -> None:
        text = render(desired, hostname=HOST).text
        for vni in desired.l3vnis:
            wanted = configured(vni, text)
            eventually(f"{vni.vrf} has {wanted}", lambda vni=vni, wanted=wanted: self.in_force(vni) == wanted)  # type: ignore[misc]

    def in_force(self, vni: DesiredL3VNI) -> InForce:
        answer = self.bench.frr.vtysh(f"show bgp l2vpn evpn vni {vni.vni} json")
        # Of a VNI that is not up: an empty object, and words.
        shown: dict[str, Any] = json.JSONDecoder().raw_decode(answer)[0]
        return set(shown.get("importRts", ())), set(shown.get("exportRts", ())), shown.get("rd", "")

    async def compare_with_fresh(self, desired: DesiredState) -> None:
        frr = self.fresh.frr
        frr.stop()
        frr.prepare()
        frr.start()
        await self.fresh.applied(desired)
        assert parse(await self.driver.running()) == parse(await self.fresh.driver.running())


def configured(vni: DesiredL3VNI, text: str) -> InForce:
    """Return what should be in force of an L3VNI: without configured route targets the derived one."""
    path = (f"router bgp {vni.asn} vrf {vni.vrf}", "address-family l2vpn evpn")
    lines = [line.split() for at, line in parse(text) if at == path]
    targets = {way: {words[2] for words in lines if words[:2] == ["route-target", way]} for way in ("import", "export")}
    derived = {f"{vni.asn & 0xFFFF}:{vni.vni}"}
    return targets["import"] or derived, targets["export"] or derived, next(w[1] for w in lines if w[0] == "rd")


@pytest.fixture
def walker(frr: FrrInstance, tmp_path: Path) -> Iterator[Walker]:
    with running_frr("frrfresh", start=False) as fresh:
        bench, driver = Bench(frr, settings_for(frr.name, tmp_path)), MortalDriver(settings_for(frr.name, tmp_path))
        bench.driver, bench.applier = driver, Applier(driver, frr.conf)
        reference = Bench(fresh, settings_for(fresh.name, tmp_path / "fresh"))
        yield Walker(bench, driver, reference, kernel_has_vrf(), Random(SEED))  # noqa: S311 - no secret


@pytest.mark.timeout(SECONDS + 300)
async def test_any_configuration_follows_any_other(walker: Walker) -> None:
    walk, end, steps = Walk(SEED), time.monotonic() + SECONDS, 0
    pids = {daemon: walker.bench.frr.pid(daemon) for daemon in DAEMONS if daemon != "bgpd"}
    while time.monotonic() < end:
        # Of a failure pytest shows it.
        print(f"OPENPEROUTER_WALK_SEED={SEED} step {steps}", flush=True)  # noqa: T201
        await walker.step(walk)
        steps += 1
    assert {daemon: walker.bench.frr.pid(daemon) for daemon in pids} == pids
