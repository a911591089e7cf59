"""What an operator reaches for when something is wrong, or over: doctor, bundle, teardown."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.checks import CHECKS, LEAF
from guestvm.machine import Machine

from .commands import CONFIGS, eventually, findings, property_of, reload, status, write

NIC = "toswitch1"
#: For commands that look at everything, on an emulated machine.
_SECONDS = 300
PLANTED = f"{CONFIGS}/openpe_planted.yaml"
RAW, SPELLED, FILED, LOGGED = "planted-raw-secret", "planted-yaml-secret", "planted-file-secret", "planted-log-secret"
#: With it other hosts make the kernel accept their connections as known ones (ip-sysctl.rst).
#: The host's end of the session in the VRF red: remote hosts have no route to the router's own address there.
HOST_END = "172.27.10.2"
KERNELS, SYSCTL = "01020304-05060708-090a0b0c-0d0e0f10", "net.ipv4.tcp_fastopen_key"
#: Stands for whatever is in files that no bundle may have.
NEVER = "xylophone"
NEVER_IN_A_BUNDLE = "api-snapshot.json mirror-key"
SNIPPET = f"""\
# password: {SPELLED}
rawfrrconfigs:
  - priority: 10
    rawConfig: |
      router bgp 64514
       neighbor 192.0.2.77 remote-as 64999
       neighbor 192.0.2.77 password {RAW}
"""


def complaints(node: Machine, level: str) -> dict[str, str]:
    """Return the doctor's complaints of one level by their topic."""
    return {found["topic"]: found["message"] for found in findings(node) if found["level"] == level}


def nic(node: Machine) -> dict[str, Any]:
    """Return what the NIC has in the host, as iproute2 sees it; empty when it is not there."""
    shown = node.remote.run(f"ip -j -d address show dev {NIC}", check=False)
    if shown.returncode != 0:
        return {}
    [link] = [link for link in json.loads(shown.stdout) if link]
    addresses = {(one["local"], one["prefixlen"]) for one in link["addr_info"] if one["scope"] == "global"}
    routes = node.remote.run(f"ip -4 route show dev {NIC}; ip -6 route show dev {NIC} | sed /^fe80/d").stdout
    listed = {" ".join(line.split()) for line in routes.splitlines()}
    return {"mtu": link["mtu"], "group": link["group"], "addresses": addresses, "routes": listed}


def test_the_doctor_finds_no_error_on_a_healthy_node(node: Machine) -> None:
    done = node.remote.run("openperouter doctor", seconds=_SECONDS, check=False)
    assert complaints(node, "error") == {}, done.stdout
    assert done.returncode in {0, 1}
    good = {found["topic"] for found in findings(node) if found["level"] == "ok"}
    assert good >= {"kernel", "frr-version", "frr-daemons", "frr-unit", "frr-running", "frr-conf", "netns", "daemon"}


def test_the_doctor_names_what_is_broken_and_its_fix_works(node: Machine) -> None:
    node.remote.run("ip netns exec perouter sysctl -q -w net.ipv4.conf.vni100.forwarding=0")
    node.remote.run("chmod 0644 /etc/frr/perouter/frr.conf")
    try:
        done = node.remote.run("openperouter doctor", seconds=_SECONDS, check=False)
        assert done.returncode == 2
        assert set(complaints(node, "error")) == {"frr-conf", "sysctls"}
        fixes = [found["fix"] for found in findings(node) if found["level"] == "error"]
        for fix in fixes:
            node.remote.run(fix.split("; find")[0])
        assert complaints(node, "error") == {}
    finally:
        node.remote.run("ip netns exec perouter sysctl -q -w net.ipv4.conf.vni100.forwarding=1")
        node.remote.run("chmod 0640 /etc/frr/perouter/frr.conf")


@pytest.fixture
def planted(node: Machine) -> Iterator[Machine]:
    """The node with a secret in each place where one may be."""
    secrets = f"{CONFIGS}/secrets"
    node.remote.run(f"mkdir -p -m 0700 {secrets}; (umask 077; echo {FILED} >{secrets}/planted)")
    node.remote.run(f"cd /var/lib/openperouter && echo {NEVER} | tee {NEVER_IN_A_BUNDLE} >/dev/null")
    write(node, PLANTED, SNIPPET)
    node.remote.run(f"chmod 0600 {PLANTED}")
    reload(node)
    entry = f"MESSAGE=peer said {RAW} and password={LOGGED}\\nOBJECT_SYSTEMD_UNIT=openperouter.service\\n"
    node.remote.run(f"printf '{entry}' | logger --journald")
    before = node.remote.run(f"sysctl -n {SYSCTL}").stdout.strip()
    node.remote.run(f"sysctl -q -w {SYSCTL}={KERNELS}")
    yield node
    node.remote.run(f"sysctl -q -w {SYSCTL}={before}")
    node.remote.run(f"rm -rf {PLANTED} {secrets}; cd /var/lib/openperouter && rm {NEVER_IN_A_BUNDLE}")
    reload(node)


def test_a_bundle_has_everything_but_secrets(planted: Machine, tmp_path: Path) -> None:
    running = planted.remote.run("vtysh -N perouter -c 'show running-config'").stdout
    assert RAW in running
    assert LOGGED in planted.remote.run("journalctl --no-pager -u openperouter -n 50").stdout
    planted.remote.run(
        "mkdir -p /run/bundle && cd /run/bundle && openperouter bundle --output report.tar.gz", seconds=300
    )
    assert planted.remote.run("stat -c %a /run/bundle/report.tar.gz").stdout.strip() == "600"
    planted.remote.copy_out("/run/bundle", tmp_path)
    planted.remote.run("rm -r /run/bundle")
    texts = unpacked((tmp_path / "report.tar.gz").read_bytes())
    for secret in (RAW, SPELLED, FILED, LOGGED, KERNELS, NEVER):
        assert not [name for name, text in texts.items() if secret in text]
    assert "neighbor 192.0.2.77 password ****" in texts["frr/running.conf"]
    assert "peer said ****" in texts["journal.txt"]
    assert f"{SYSCTL} = ****" in texts["host/sysctl.txt"]
    assert json.loads(texts["status.json"])["status"]["ready"]
    assert "vni100" in texts["router/ip-link.txt"]
    failed = {piece["name"]: piece["error"] for piece in json.loads(texts["manifest.json"])["pieces"] if piece["error"]}
    assert failed == {}


def unpacked(archive: bytes) -> dict[str, str]:
    """Return an archive's texts by their name below its one directory."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        found = {}
        for member in members.getmembers():
            stream = members.extractfile(member)
            assert stream is not None
            assert member.mode == 0o600
            found[member.name.partition("/")[2]] = stream.read().decode()
    return found


def test_ping_trace_and_exec_act_inside_the_router(node: Machine) -> None:
    assert "1 received" in node.remote.run(f"openperouter ping -c 1 {LEAF}").stdout
    assert "1 received" in node.remote.run(f"openperouter ping -c 1 --vrf 100 {HOST_END}").stdout
    way = node.remote.run(f"openperouter trace --vrf red {HOST_END}").stdout.splitlines()
    assert [hop.split()[1] for hop in way] == [HOST_END], way
    assert "dev red" not in node.remote.run("openperouter exec -- ip -o route show").stdout
    inside = node.remote.run("openperouter exec --vrf red -- sh -c 'ip vrf identify $$; ip -o link show dev vni100'")
    assert inside.stdout.split()[0] == "red"
    assert "vni100" in inside.stdout
    # A connection of the VRF reaches what only the VRF has a route to; its socket is bound by no option of its own.
    over_vrf = f"openperouter exec --vrf red -- ping -c 1 -W 5 {HOST_END}"
    assert "1 received" in node.remote.run(over_vrf).stdout
    assert node.remote.run("openperouter exec -- sh -c 'exit 7'", check=False).returncode == 7


def test_vtysh_shows_and_nothing_else(node: Machine) -> None:
    shown = node.remote.run("openperouter vtysh -c 'show bgp summary' -c 'show evpn vni'").stdout
    assert LEAF in shown
    assert "100" in shown
    assert (
        json.loads(node.remote.run("openperouter vtysh -d zebra -c 'show evpn vni json'").stdout)["100"]["vni"] == 100
    )
    refused = node.remote.run("openperouter vtysh -c 'configure terminal'", check=False)
    assert refused.returncode == 64


def test_the_status_and_the_metrics_count_the_evpn_routes_of_a_vni(node: Machine) -> None:
    """Of a VRF whose route targets FRR derives, in another AS than the leaf's."""
    numbers = "^openperouter_vni_evpn_routes_(received|advertised).vni=.100.,.*route_type=.5.. [1-9]"

    def counted() -> bool:
        red = next((vni for vni in status(node)["vnis"] if vni["vni"] == 100), None)
        return red is not None and bool(red["evpn_received"].get("5") and red["evpn_advertised"].get("5"))

    def measured() -> bool:
        found = node.remote.run(f"grep -cE '{numbers}' /run/openperouter/metrics/openperouter.prom", check=False)
        return found.stdout.strip() == "2"

    eventually(counted, "the status has the numbers of both directions")
    eventually(measured, "the metrics have them")


def test_the_journal_of_one_resource_and_the_events_of_a_change(node: Machine) -> None:
    node.remote.run(
        "systemd-run --quiet --unit=follow-events --property=StandardOutput=file:/run/events "
        "--property=StandardError=file:/run/events.err openperouter events --follow --json"
    )
    wrong, message = f"{CONFIGS}/openpe_extra.yaml", "a VRF name has at most 15 characters"
    try:
        write(node, wrong, "l3vnis:\n  - {name: extra, vrf: much-longer-than-linux-allows, vni: 900}\n")
        reload(node, check=False)
        node.remote.run("systemctl restart openperouter", seconds=300)
        said = "cat /run/events.err"
        eventually(lambda: "from the new process" in node.remote.run(said).stdout, "the follower is back")
    finally:
        node.remote.run(f"rm {wrong}; systemctl stop follow-events", check=False)
        reload(node)
    events = [json.loads(line) for line in node.remote.run("cat /run/events").stdout.splitlines()]
    assert ("problem", "L3VNI extra") in {(one["topic"], one["subject"]) for one in events}
    assert sum(one["topic"] == "daemon" for one in events) == 2
    history = node.remote.run("openperouter events").stdout
    assert f"{message} in Linux" in history
    assert "resolved: " in history
    assert message in node.remote.run("openperouter logs --since 1h extra").stdout
    assert message not in node.remote.run("openperouter logs --since 1h red").stdout
    everything = node.remote.run("openperouter logs --since 1h").stdout
    assert message in everything
    assert "new desired state" in everything


def test_teardown_gives_the_nic_back_and_a_second_one_does_nothing(node: Machine) -> None:
    refused = node.remote.run("openperouter teardown --yes", seconds=_SECONDS, check=False)
    assert refused.returncode == 75
    assert "systemctl stop openperouter" in refused.stderr
    assert nic(node) == {}
    node.remote.run("systemctl stop openperouter", seconds=300)
    try:
        done = node.remote.run("openperouter teardown --yes", seconds=_SECONDS)
        assert NIC in done.stdout
        given_back = nic(node)
        assert given_back["addresses"] == {("192.168.11.3", 24)}
        assert_nothing_is_left(node)
        again = node.remote.run("openperouter teardown --yes", seconds=_SECONDS)
        assert "nothing of the router is left" in again.stdout
        assert nic(node) == given_back
    finally:
        # The workload's port lost its bridge with the router, and attach takes one that is there for attached.
        node.remote.run("ip link delete dev tonear", check=False)
        node.remote.run("systemctl start openperouter && /usr/local/libexec/fabric/attach", seconds=300)
    assert nic(node) == {}
    eventually(lambda: all(check.ask(node).ok for check in CHECKS), "the router is back")


def assert_nothing_is_left(node: Machine) -> None:
    """Look for devices, sessions and files of the router; the namespace and its FRR stay."""
    links = node.remote.run("ip -o link show group 4243; ip -o -n perouter link show group 4243").stdout
    assert not links.strip()
    assert "router bgp" not in node.remote.run("vtysh -N perouter -c 'show running-config'").stdout
    assert "router bgp" not in node.remote.run("cat /etc/frr/perouter/frr.conf").stdout
    assert node.remote.run("ls /var/lib/openperouter").stdout.split().count("nic-journal.json") == 0
    assert property_of(node, "ActiveState", "frr@perouter") == "active"
