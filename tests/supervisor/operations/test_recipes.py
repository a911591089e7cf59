"""The recipes' pages: the router's side is valid, and the other agrees with what ``show peer-config`` prints of it.

What runs with real speakers is in ``tests/frr/test_recipes.py`` and ``tests/kernel/test_recipes.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config.api import API_VERSION, ApiObject, ApiSnapshot
from config.desired import Secret
from config.problems import Kind
from config.sources.api_objects import read_objects
from supervisor.cli import main
from tests.recipes import OUR_GROUP, RECIPES, documents, find, objects, router_file
from tests.supervisor.cli.examples import write_settings

UNDERLAY = """\
underlays:
  - asn: 64514
    interfaces: [{type: NetworkDevice, networkDevice: {interfaceName: toswitch1}}]
    neighbors: [{asn: 64512, address: 192.168.11.2}]
    tunnelEndpoint: {cidrs: [100.65.0.0/24]}
"""
PAGES = sorted(path.name for path in RECIPES.glob("*.md"))
SESSIONS = [page for page in PAGES if "hostSession" in router_file(page)]
SEGMENTS = [page for page in PAGES if "l2vnis" in router_file(page)]
#: What a session's neighbour needs, unless it says otherwise.
BGP_PORT = 179


@dataclass(frozen=True)
class Side:
    """One side's idea of a session: the host's AS, the router's AS and address, and where the password is."""

    host_as: int
    router_as: int
    router: str
    secret: str | None = None
    port: int = BGP_PORT


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of the node with index 0."""
    monkeypatch.setenv("NO_COLOR", "1")
    settings = write_settings(tmp_path)
    (tmp_path / "node-config.yaml").write_text("nodeIndex:\n  index: 0\n")
    return settings


def configure(settings: Path, page: str) -> None:
    """Give the node an underlay and the page's file, with its password."""
    configs = settings.parent / "configs"
    [network] = documents(router_file(page))[0].get("l3vnis", [])
    if reference := network.get("hostSession", {}).get("passwordSecret"):
        (configs / "secrets").mkdir(mode=0o700)
        (configs / "secrets" / reference["name"]).write_text("change-me\n")
        (configs / "secrets" / reference["name"]).chmod(0o600)
    for name, text in (("openpe_underlay.yaml", UNDERLAY), ("openpe_recipe.yaml", router_file(page))):
        (configs / name).write_text(text)
        (configs / name).chmod(0o600)


def call(settings: Path, *words: str) -> int:
    return main(["--settings", str(settings), *words])


def printed(settings: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, Side]:
    """Return what ``show peer-config red`` prints, and what it says to MetalLB."""
    assert call(settings, "show", "peer-config", "red") == 0
    text = capsys.readouterr().out
    [peer] = documents(text.partition("# MetalLB\n")[2])
    return text, metallb_peer(peer["spec"])


def metallb_peer(spec: dict[str, Any]) -> Side:
    secret = spec.get("passwordSecret", {}).get("name")
    return Side(spec["myASN"], spec["peerASN"], spec["peerAddress"], secret, spec.get("peerPort", BGP_PORT))


def metallb(page: str) -> list[Side]:
    [router] = find(page, "FRRConfiguration")["spec"]["bgp"]["routers"]
    [neighbor] = router["neighbors"]
    reference = neighbor["passwordSecret"]
    assert reference["namespace"] == find(page, "Secret")["metadata"]["namespace"]
    port = neighbor.get("port", BGP_PORT)
    merged = Side(router["asn"], neighbor["asn"], neighbor["address"], reference["name"], port)
    assert find(page, "Secret")["type"] == "kubernetes.io/basic-auth"
    assert find(page, "BGPAdvertisement")["spec"]["peers"] == [find(page, "BGPPeer")["metadata"]["name"]]
    pool = find(page, "IPAddressPool")
    assert find(page, "BGPAdvertisement")["spec"]["ipAddressPools"] == [pool["metadata"]["name"]]
    assert pool["spec"]["addresses"] == allowed(page)
    return [metallb_peer(find(page, "BGPPeer")["spec"]), merged]


def calico(page: str) -> list[Side]:
    peer = find(page, "BGPPeer")["spec"]
    reference = peer["password"]["secretKeyRef"]
    assert reference["key"] in find(page, "Secret")["stringData"]
    assert [find(page, "IPPool")["spec"]["cidr"]] == allowed(page)
    own = find(page, "BGPConfiguration")["spec"]["asNumber"]
    return [Side(own, peer["asNumber"], peer["peerIP"], reference["name"])]


def cilium(page: str) -> list[Side]:
    [instance] = find(page, "CiliumBGPClusterConfig")["spec"]["bgpInstances"]
    [peer] = instance["peers"]
    config, advertisement = find(page, "CiliumBGPPeerConfig"), find(page, "CiliumBGPAdvertisement")
    assert peer["peerConfigRef"]["name"] == config["metadata"]["name"]
    [family] = config["spec"]["families"]
    assert family["advertisements"]["matchLabels"] == advertisement["metadata"]["labels"]
    port = config["spec"]["transport"]["peerPort"]
    secret = config["spec"]["authSecretRef"]
    assert "password" in find(page, "Secret")["stringData"]
    return [Side(instance["localASN"], peer["peerASN"], peer["peerAddress"], secret, port)]


def kube_vip(page: str) -> list[Side]:
    [container] = find(page, "Pod")["spec"]["containers"]
    values = {one["name"]: one["value"] for one in container["env"]}
    assert [f"{values['address']}/32"] == allowed(page)
    assert values["bgp_sourceip"] == values["bgp_routerid"] == "172.27.10.2"
    return [Side(int(values["bgp_as"]), int(values["bgp_peeras"]), values["bgp_peeraddress"])]


def allowed(page: str) -> list[str]:
    [network] = documents(router_file(page))[0]["l3vnis"]
    found: list[str] = network["hostSession"]["allowedPrefixes"]
    return found


OTHERS = {"metallb.md": metallb, "calico.md": calico, "cilium.md": cilium, "kube-vip.md": kube_vip}


def test_each_page_with_a_session_has_its_other_side_checked() -> None:
    # FRR's and BIRD's own are compared line by line where they run (tests/frr/test_recipes.py).
    assert {*OTHERS, "frr-on-the-host.md", "bird-on-the-host.md"} == set(SESSIONS)
    assert sorted({*SESSIONS, *SEGMENTS}) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_the_routers_side_is_valid_without_a_warning(page: str, node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(node, page)
    assert call(node, "validate") == 0
    shown = capsys.readouterr()
    assert "warning" not in shown.out + shown.err


@pytest.mark.parametrize("page", PAGES)
def test_the_routers_side_as_an_object_is_valid_and_the_same(page: str) -> None:
    entries = {
        entry["name"]: entry for key in ("l3vnis", "l2vnis") for entry in documents(router_file(page))[0].get(key, [])
    }
    ours = [one for one in objects(page) if one["apiVersion"].startswith(OUR_GROUP)]
    assert bool(ours) == (page in ("metallb.md", "multus-bridge.md"))
    for one in ours:
        name, namespace = one["metadata"]["name"], one["metadata"]["namespace"]
        assert one["apiVersion"] == API_VERSION
        assert one["spec"] == {key: value for key, value in entries[name].items() if key != "name"}
        found = ApiObject(Kind(one["kind"]), namespace, name, resource_version="1", generation=1, spec=one["spec"])
        secrets = {(namespace, "red-ipv4-password", "password"): Secret("change-me")}
        resources, problems = read_objects(ApiSnapshot(objects=(found,), secrets=secrets), namespace)
        assert (len(resources), problems) == (1, ())


@pytest.mark.parametrize("page", OTHERS)
def test_the_other_side_agrees_with_what_peer_config_prints(
    page: str, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(node, page)
    text, wanted = printed(node, capsys)
    assert "# host-e-100: host 172.27.10.2/24, router 172.27.10.1 AS 64514" in text
    assert "change-me" not in text
    sides = OTHERS[page](page)
    for side in sides:
        assert (side.host_as, side.router_as, side.router) == (wanted.host_as, wanted.router_as, wanted.router)
        assert side.port == BGP_PORT
        assert (side.secret is None) == (wanted.secret is None)
    if page == "metallb.md":
        # The printed peer as it is, and the Secret that it names; other programs have their own form.
        assert set(sides) == {wanted}
        assert wanted.secret == find(page, "Secret")["metadata"]["name"]
    elif wanted.secret:
        [network] = documents(router_file(page))[0]["l3vnis"]
        assert {side.secret for side in sides} == {network["hostSession"]["passwordSecret"]["name"]}
        assert find(page, "Secret")["metadata"]["name"] in {side.secret for side in sides}


@pytest.mark.parametrize("page", SEGMENTS)
def test_the_attachment_is_to_the_segments_bridge_with_its_mtu(page: str) -> None:
    [segment] = documents(router_file(page))[0]["l2vnis"]
    plugin = json.loads(find(page, "NetworkAttachmentDefinition")["spec"]["config"])
    assert plugin["name"] == find(page, "NetworkAttachmentDefinition")["metadata"]["name"]
    assert (plugin["type"], plugin["bridge"], plugin["mtu"]) == ("bridge", f"br-hs-{segment['vni']}", 1500 - 50)
    [gateway] = segment["gatewayIPs"]
    subnet = gateway.rpartition(".")[0]
    addresses = [one["address"] for one in plugin.get("ipam", {}).get("addresses", [])]
    if page == "kubevirt.md":
        addresses += virtual_machine(find(page, "VirtualMachine")["spec"]["template"]["spec"], plugin, gateway)
        assert plugin["disableContainerInterface"]
        assert "ipam" not in plugin  # the plugin refuses the two together
    assert len(addresses) == 1
    assert addresses[0].startswith(f"{subnet}.")
    assert addresses[0].partition("/")[2] == gateway.partition("/")[2]


def virtual_machine(spec: dict[str, Any], plugin: dict[str, Any], gateway: str) -> list[str]:
    """Check that the machine's parts name one another; return the guest's addresses."""
    [interface] = spec["domain"]["devices"]["interfaces"]
    [network] = spec["networks"]
    assert (interface["name"], interface["bridge"]) == (network["name"], {})
    definition = find("kubevirt.md", "NetworkAttachmentDefinition")["metadata"]
    assert network["multus"]["networkName"] == f"{definition['namespace']}/{definition['name']}"
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert [disk["name"] for disk in spec["domain"]["devices"]["disks"]] == list(volumes)
    [guest] = documents(volumes["cloudinit"]["cloudInitNoCloud"]["networkData"])[0]["ethernets"].values()
    assert guest["match"]["macaddress"] == interface["macAddress"]
    assert guest["mtu"] == plugin["mtu"]
    assert [route["via"] for route in guest["routes"]] == [gateway.partition("/")[0]]
    found: list[str] = guest["addresses"]
    return found


@pytest.mark.parametrize("page", SEGMENTS)
def test_a_segment_has_no_session_with_the_host(page: str, node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure(node, page)
    assert call(node, "show", "peer-config", "red") == 64
    assert "L3VNI red has no hostSession" in capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES)
def test_each_page_says_when_how_what_goes_wrong_and_what_was_run(page: str) -> None:
    text = (RECIPES / page).read_text()
    if page in OTHERS or page in SEGMENTS:
        for title in ("## The router", "## Does it work", "## What goes wrong", "## What was run"):
            assert f"\n{title}\n" in text, title
    assert "tests/" in text or "Tests validate" in text
