"""A hundred deaths of the supervisor at random moments, its restart, reload and upgrade: no tenant loses a packet.

Pings go through an L3VNI, an L2VNI and the passthrough all the while. Most deaths come while other tenants are added,
changed and removed: at a random moment of a start, of a change's application, or of a reload. The seed is printed;
``OPENPEROUTER_SEED`` repeats it, and ``OPENPEROUTER_KILLS`` is how many deaths there are.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from pathlib import Path

import autopkgtest
import pytest

from demo.checks import CHECKS, FABRIC_HOST_V4, FAR_HOST, PLAIN_HOST
from guestvm.machine import Machine
from guestvm.progress import say

from .commands import CONFIGS, active, eventually, property_of, reload
from .package import built_package, next_version
from .traffic import Traffic, nothing_lost

KILLS = int(os.environ.get("OPENPEROUTER_KILLS", "100"))
FLOWS = {
    "L3VNI": ("", FABRIC_HOST_V4),
    "L2VNI": ("ip netns exec near", FAR_HOST),
    "passthrough": ("", PLAIN_HOST),
}
OTHERS = f"{CONFIGS}/openpe_others.yaml"
#: Where deaths come, in this proportion: most need not wait until the supervisor is ready.
MOMENTS = ("start",) * 6 + ("change", "reload")
#: How long an application or a reload takes on an emulated machine: deaths come within it.
CHANGE_SECONDS = 8.0
START_SECONDS = 300

L3VNI = """\
  - {{name: {vrf}, vrf: {vrf}, vni: {vni}, hostSession: {{asn: 64514, hostASN: {asn}, localCIDR: {{ipv4: {cidr}}}}}}}
"""
L2VNI = """\
  - {{name: segment{vni}, vni: {vni}, hostMaster: {{type: LinuxBridge, linuxBridge: {{lifecycle: Managed}}}}}}
"""
#: Waits until the supervisor's process is there, and ready if that is asked for; then kills it after a while.
KILL = """
systemctl reset-failed openperouter
end=$(($(date +%s) + {seconds}))
while eval "$(systemctl show -p MainPID -p ActiveState openperouter)"
    [ "$MainPID" = 0 ] || case $ActiveState in {wanted}) false;; esac
do
    [ "$(date +%s)" -lt "$end" ] || {{ echo "not within {seconds} s: {wanted}; it is $ActiveState" >&2; exit 1; }}
    sleep 0.05
done
{change}
sleep {delay:.2f}
systemctl show -p ActiveState -p SubState -p StatusText openperouter | tr '\\n' ' '
kill -KILL "$MainPID" && date +%s.%N
"""


def others(draw: random.Random) -> str:
    """Return a file with tenants that no ping goes through: none to three, of few kinds, so that they often change."""
    l3vnis = "".join(
        L3VNI.format(vrf=vrf, vni=draw.choice((first, first + 1)), asn=draw.choice((64515, 64999)), cidr=cidr)
        for vrf, first, cidr in (("blue", 300, "172.29.10.0/24"), ("cyan", 302, "172.30.10.0/24"))
        if draw.random() < 0.5
    )
    l2vnis = "".join(L2VNI.format(vni=vni) for vni in (400, 401) if draw.random() < 0.5)
    return "".join(f"{kind}:\n{items}" for kind, items in (("l3vnis", l3vnis), ("l2vnis", l2vnis)) if items)


def writing(text: str) -> str:
    """Return the shell's words that write the others' file as an editor does; an empty one goes."""
    if not text:
        return f"rm -f {OTHERS}\n"
    return f"cat >{OTHERS}.new <<'EOF'\n{text}EOF\nmv {OTHERS}.new {OTHERS}\n"


def kill(node: Machine, moment: str, draw: random.Random, start_seconds: float) -> tuple[float, str]:
    """Kill the supervisor at a moment; return the guest's time of that, and what it was about."""
    text = others(draw)
    change, what = writing(text), f"others are now {text.split() or 'none'}"
    if moment == "start" and draw.random() < 0.4:
        change, what = "", "nothing changed"
    if moment == "reload":
        change += "systemctl reload openperouter >/dev/null 2>&1 &\n"
    limit = start_seconds * 1.2 if moment == "start" else CHANGE_SECONDS
    delay = draw.uniform(0, limit)
    wanted = "activating | active" if moment == "start" else "active"
    script = KILL.format(seconds=START_SECONDS, wanted=wanted, change=change, delay=delay)
    *state, when = node.remote.run(script, seconds=START_SECONDS + 60).stdout.split()
    return float(when), f"kill -9 in {moment}, {delay:.2f} s into it ({' '.join(state)}); {what}"


def frr_processes(node: Machine) -> dict[str, str]:
    """Return FRR's processes, but for mgmtd, which the supervisor may end after a death within a commit."""
    listing = node.remote.run("cd /run/frr/perouter && grep -H . zebra.pid bgpd.pid bfdd.pid staticd.pid watchfrr.pid")
    return dict(line.split(":") for line in listing.stdout.split())


def now(node: Machine) -> float:
    """Return the guest's time."""
    return float(node.remote.run("date +%s.%N").stdout)


def announced(traffic: Traffic, what: str) -> None:
    """Note what begins now."""
    traffic.note(now(traffic.node), what)


def die_often(node: Machine, traffic: Traffic, draw: random.Random) -> None:
    """Kill the supervisor at all the moments, in an order that is drawn."""
    begin = time.monotonic()
    announced(traffic, "systemctl restart")
    node.remote.run("systemctl restart openperouter", seconds=START_SECONDS)
    start_seconds = time.monotonic() - begin
    moments = [MOMENTS[number % len(MOMENTS)] for number in range(KILLS)]
    draw.shuffle(moments)
    for number, moment in enumerate(moments, 1):
        when, what = kill(node, moment, draw, start_seconds)
        traffic.note(when, f"{number}: {what}")


def upgrade(node: Machine, traffic: Traffic, directory: Path) -> None:
    """Install a higher version, then the first one again; each replaces the supervisor."""
    next_version(built_package(), directory)
    node.remote.copy_in(directory, "/root/next")
    for what, package in (("upgrade", "/root/next/openperouter.deb"), ("downgrade", autopkgtest.PACKAGE)):
        replaced = property_of(node, "MainPID")
        announced(traffic, what)
        autopkgtest.install(node, f"--allow-downgrades --reinstall {package}")
        eventually(
            lambda replaced=replaced: active(node) and property_of(node, "MainPID") != replaced,  # type: ignore[misc]
            f"another supervisor is ready after the {what}",
            seconds=START_SECONDS,
        )


@pytest.mark.timeout(5400)
def test_no_tenant_loses_a_packet_whenever_the_supervisor_dies(
    node: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("OPENPEROUTER_SEED") or secrets.randbits(32))
    with capsys.disabled():
        say(f"{KILLS} deaths with OPENPEROUTER_SEED={seed}")
    draw = random.Random(seed)  # noqa: S311 - no secret
    daemons = frr_processes(node)
    begin = time.monotonic()
    try:
        with nothing_lost(node, FLOWS) as traffic:
            die_often(node, traffic, draw)
            died = time.monotonic() - begin
            eventually(lambda: active(node), "the supervisor is ready after the last death", seconds=START_SECONDS)
            announced(traffic, "the others go, systemctl reload")
            node.remote.run(writing(""))
            reload(node)
            announced(traffic, "systemctl reload without a change")
            reload(node)
            upgrade(node, traffic, tmp_path)
    finally:
        node.remote.run(writing(""))
    with capsys.disabled():
        say(f"{KILLS} deaths in {died:.0f} s; pings sent and all answered: {traffic.sent}")
    assert frr_processes(node) == daemons
    plan = node.remote.run("openperouter plan", check=False)
    assert plan.returncode == 0, plan.stdout
    for check in CHECKS:
        verdict = check.wait(node)
        assert verdict.ok, f"{check.title}: {verdict.evidence}"
