"""The recipes for the host's BGP speaker, word for word, with real speakers: the session comes up and routes arrive.

The pages are about an L3VNI; the passthrough has the same session in the instance of the underlay, without VRF devices.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest

from config.desired import DesiredSession, Secret
from supervisor.operations.peer_config import peer_config
from tests.actors.frr.cases import ENDS_V4, l3vni, session, state, underlay
from tests.recipes import block, documents, find, router_file

from .harness import eventually, sh
from .test_guarded_sessions import PLAIN, Host, hosts, passthrough

ANNOUNCED = "10.50.0.0/24"
#: A route of another node's host. Hosts share an AS, which is therefore in the path.
OF_ANOTHER_HOST = "10.50.9.0/24"
#: A route of the fabric without a host's AS; it shows that the other one would have arrived too.
OF_THE_FABRIC = "203.0.113.0/24"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosts(tmp_path) as found:
        yield found


@contextmanager
def bird(directory: Path, page: str = "bird-on-the-host.md") -> Iterator[None]:
    """BIRD on the host with the page's configuration."""
    configuration = directory / "bird.conf"
    configuration.write_text(block(page, "bird"))
    sh(f"bird -p -c {configuration}")
    command = ["ip", "netns", "exec", "frrhost", "bird", "-f", "-c", str(configuration), "-s", str(directory / "ctl")]
    with subprocess.Popen(command) as daemon:
        try:
            yield
        finally:
            daemon.terminate()


def learn_from_the_fabric(host: Host) -> None:
    """Have the router announce two routes as from the fabric: leaf AS 64512, and of one the other node and its host."""
    commands = ["configure terminal"]
    for name, path in (("host", "64512 64514 64515"), ("fabric", "64512")):
        commands += [f"route-map another-{name} permit 1", f"set as-path prepend {path}", "exit"]
    commands += ["router bgp 64514", "address-family ipv4 unicast"]
    commands += [
        f"network {OF_ANOTHER_HOST} route-map another-host",
        f"network {OF_THE_FABRIC} route-map another-fabric",
    ]
    host.router.vtysh(*commands)


def learned_by_bird(directory: Path, protocol: str) -> str:
    return sh(f"birdc -s {directory / 'ctl'} show route protocol {protocol}")


async def test_the_page_on_bird(host: Host, tmp_path: Path) -> None:
    await host.bench.applied(passthrough(PLAIN))
    with bird(tmp_path):
        eventually("the session is up", host.is_up)
        eventually("BIRD's route is there", lambda: ANNOUNCED in host.routes())
        learn_from_the_fabric(host)
        eventually("the other host's route is there", lambda: OF_ANOTHER_HOST in learned_by_bird(tmp_path, "red_ipv4"))


GOBGP = """\
[global.config]
  as = 64515
  router-id = "172.27.10.2"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "172.27.10.1"
    peer-as = 64514
    auth-password = "s3cret"
  [neighbors.timers.config]
    connect-retry = 1
"""


@contextmanager
def gobgp(directory: Path) -> Iterator[Callable[[str], str]]:
    """GoBGP on the host; the function runs its client."""
    configuration = directory / "gobgpd.toml"
    configuration.write_text(GOBGP)
    inside = ["ip", "netns", "exec", "frrhost"]
    with subprocess.Popen([*inside, "gobgpd", "-f", str(configuration)]) as daemon:

        def ask(words: str) -> str:
            return sh(f"{' '.join(inside)} gobgp {words}", check=False)

        try:
            eventually("gobgpd answers", lambda: "64515" in ask("global"))
            yield ask
        finally:
            daemon.terminate()


@pytest.mark.skipif(shutil.which("gobgpd") is None, reason="no gobgpd: tests/harness/fetch-package.sh fetches it")
async def test_gobgp_as_the_hosts_speaker(host: Host, tmp_path: Path) -> None:
    desired = passthrough(replace(PLAIN, password=Secret("s3cret")))
    await host.bench.applied(desired)
    with gobgp(tmp_path) as ask:
        eventually("the session is up", host.is_up)
        ask(f"global rib add {ANNOUNCED} nexthop 172.27.10.2 -a ipv4")
        eventually("GoBGP's route is in the router", lambda: ANNOUNCED in host.routes())
        commands = ("configure terminal", "router bgp 64514", "address-family ipv4 unicast", "network 172.27.10.0/24")
        host.router.vtysh(*commands)
        eventually("the router's route is in GoBGP", lambda: "172.27.10.0/24" in ask("global rib -a ipv4"))
        ask(f"global rib del {ANNOUNCED} -a ipv4")
        eventually("GoBGP's route has gone", lambda: ANNOUNCED not in host.routes())


def learned_by_frr(host: Host) -> set[str]:
    shown = json.loads(host.speaker.vtysh("show bgp ipv4 unicast json") or "{}").get("routes", {})
    return {prefix for prefix, paths in shown.items() if any(path["path"] for path in paths)}


async def test_the_page_on_frr(host: Host, tmp_path: Path) -> None:
    await host.bench.applied(passthrough(PLAIN))
    path = tmp_path / "host.conf"
    path.write_text(block("frr-on-the-host.md", "frr"))
    host.speaker.load(path)
    eventually("the session is up", host.is_up)
    eventually("FRR's route is there", lambda: ANNOUNCED in host.routes())
    learn_from_the_fabric(host)
    eventually("the other host's route is there", lambda: OF_ANOTHER_HOST in learned_by_frr(host))
    unicast = ("configure terminal", "router bgp 64515", "address-family ipv4 unicast")
    host.speaker.vtysh(*unicast, "no neighbor 172.27.10.1 allowas-in")
    eventually("the other host's route has gone", lambda: OF_ANOTHER_HOST not in learned_by_frr(host))
    assert OF_THE_FABRIC in learned_by_frr(host)
    host.speaker.vtysh(*unicast, "neighbor 172.27.10.1 allowas-in 1", f"no network {ANNOUNCED}")
    eventually("a withdrawn route does not come back to its host", lambda: ANNOUNCED not in host.routes())
    assert ANNOUNCED not in learned_by_frr(host)


async def test_hosts_with_an_as_of_their_own_need_nothing_for_each_others_routes(host: Host, tmp_path: Path) -> None:
    await host.bench.applied(passthrough(replace(PLAIN, remote_as="external")))
    path = tmp_path / "host.conf"
    page = block("frr-on-the-host.md", "frr")
    allowed = " neighbor 172.27.10.1 allowas-in 1\n"
    assert allowed in page
    path.write_text(page.replace("router bgp 64515", "router bgp 64516").replace(allowed, ""))
    host.speaker.load(path)
    eventually("the session is up", host.is_up)
    learn_from_the_fabric(host)
    eventually("the other host's route is there", lambda: OF_ANOTHER_HOST in learned_by_frr(host))


def guarded(page: str) -> DesiredSession:
    """The page's session of the router: with its password, taking only the networks that the page allows."""
    [network] = documents(router_file(page))[0]["l3vnis"]
    allowed = tuple(map(ip_network, network["hostSession"]["allowedPrefixes"]))
    [password] = find(page, "Secret")["stringData"].values()
    return replace(PLAIN, password=Secret(password), allowed_prefixes=allowed)


async def test_what_frr_k8s_makes_of_the_page_on_metallb(host: Host, tmp_path: Path) -> None:
    await host.bench.applied(passthrough(guarded("metallb.md")))
    path = tmp_path / "host.conf"
    # Another service, outside of what the router's side allows.
    outside = "router bgp 64515\naddress-family ipv4 unicast\nnetwork 192.0.2.7/32\nexit\nexit\n"
    outside += "ip prefix-list 172.27.10.1-pl-ipv4 seq 9 permit 192.0.2.7/32\n"
    path.write_text(block("metallb.md", "frr") + outside)
    host.speaker.load(path)
    eventually("the session is up", host.is_up)
    eventually("the service's route is there", lambda: "198.51.100.10/32" in host.routes())
    assert "192.0.2.7/32" in host.speaker.vtysh("show bgp ipv4 unicast neighbors 172.27.10.1 advertised-routes")
    assert "192.0.2.7/32" not in host.routes()
    learn_from_the_fabric(host)
    eventually("the tenant's route is there", lambda: OF_THE_FABRIC in learned_by_frr(host))


async def test_what_the_page_on_calico_is_in_bird(host: Host, tmp_path: Path) -> None:
    await host.bench.applied(passthrough(guarded("calico.md")))
    with bird(tmp_path, "calico.md"):
        eventually("the session is up", host.is_up)
        eventually("the pods' block is there", lambda: "10.244.7.0/26" in host.routes())
        sent = sh(f"birdc -s {tmp_path / 'ctl'} show route export Global_172_27_10_1")
        assert "192.0.2.0/24" in sent
        assert "192.0.2.0/24" not in host.routes()
        learn_from_the_fabric(host)
        learned = functools.partial(learned_by_bird, tmp_path, "Global_172_27_10_1")
        eventually("the other node's pods are there", lambda: OF_ANOTHER_HOST in learned())


@pytest.mark.parametrize(
    ("page", "language", "title"), [("frr-on-the-host.md", "frr", "FRR"), ("bird-on-the-host.md", "bird", "BIRD 2")]
)
def test_the_pages_have_what_peer_config_prints(page: str, language: str, title: str) -> None:
    host_session = replace(session(ENDS_V4), asn=64514, remote_as=64515)
    printed = peer_config(state(underlay=underlay(), l3vnis=(l3vni(host=host_session),)), "red")
    lines = printed.partition(f"\n# {title}\n")[2].partition("\n\n")[0].splitlines()
    assert len(lines) >= 5
    assert [line for line in lines if line not in block(page, language).splitlines()] == []
