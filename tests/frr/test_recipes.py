"""The recipes for the host's BGP speaker, word for word, with real speakers: the session comes up and routes arrive.

The pages are about an L3VNI; the passthrough has the same session in the instance of the underlay, without VRF devices.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from config.desired import Secret
from supervisor.operations.peer_config import peer_config
from tests.actors.frr.cases import ENDS_V4, l3vni, session, state, underlay

from .harness import eventually, sh
from .test_guarded_sessions import PLAIN, Host, hosts, passthrough

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
ANNOUNCED = "10.50.0.0/24"


def block(page: str, language: str) -> str:
    """Return a page's one block of a language."""
    [text] = re.findall(rf"^```{language}\n(.*?)^```$", (RECIPES / page).read_text(), re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with hosts(tmp_path) as found:
        yield found


@contextmanager
def bird(directory: Path) -> Iterator[None]:
    """BIRD on the host with the page's configuration."""
    configuration = directory / "bird.conf"
    configuration.write_text(block("bird-on-the-host.md", "bird"))
    sh(f"bird -p -c {configuration}")
    command = ["ip", "netns", "exec", "frrhost", "bird", "-f", "-c", str(configuration), "-s", str(directory / "ctl")]
    with subprocess.Popen(command) as daemon:
        try:
            yield
        finally:
            daemon.terminate()


async def test_the_page_on_bird(host: Host, tmp_path: Path) -> None:
    await host.bench.applied(passthrough(PLAIN))
    with bird(tmp_path):
        eventually("the session is up", host.is_up)
        eventually("BIRD's route is there", lambda: ANNOUNCED in host.routes())


GOBGP = """\
[global.config]
  as = 64515
  router-id = "192.170.10.2"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "192.170.10.1"
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
        ask(f"global rib add {ANNOUNCED} nexthop 192.170.10.2 -a ipv4")
        eventually("GoBGP's route is in the router", lambda: ANNOUNCED in host.routes())
        commands = ("configure terminal", "router bgp 64514", "address-family ipv4 unicast", "network 192.170.10.0/24")
        host.router.vtysh(*commands)
        eventually("the router's route is in GoBGP", lambda: "192.170.10.0/24" in ask("global rib -a ipv4"))
        ask(f"global rib del {ANNOUNCED} -a ipv4")
        eventually("GoBGP's route has gone", lambda: ANNOUNCED not in host.routes())


async def test_the_page_on_frr(host: Host, tmp_path: Path) -> None:
    await host.bench.applied(passthrough(PLAIN))
    path = tmp_path / "host.conf"
    path.write_text(block("frr-on-the-host.md", "frr"))
    assert "%" not in sh(f"vtysh -N {host.speaker.name} -f {path}")
    eventually("the session is up", host.is_up)
    eventually("FRR's route is there", lambda: ANNOUNCED in host.routes())


@pytest.mark.parametrize(
    ("page", "language", "title"), [("frr-on-the-host.md", "frr", "FRR"), ("bird-on-the-host.md", "bird", "BIRD 2")]
)
def test_the_pages_have_what_peer_config_prints(page: str, language: str, title: str) -> None:
    host_session = replace(session(ENDS_V4), asn=64514, remote_as=64515)
    printed = peer_config(state(underlay=underlay(), l3vnis=(l3vni(host=host_session),)), "red")
    lines = printed.partition(f"\n# {title}\n")[2].partition("\n\n")[0].splitlines()
    assert len(lines) >= 5
    assert [line for line in lines if line not in block(page, language).splitlines()] == []
