"""What forwarding survives: the supervisor's death and its freezing, its stop, FRR's restart, a lost bridge entry."""

from __future__ import annotations

from functools import partial

from demo.checks import FABRIC_HOST_V4, LEAF, PLAIN_HOST, ping, session, vtysh_json
from guestvm.machine import Machine

from .commands import CONFIGS, active, eventually, no_ping_lost, property_of, reload, write

SETTINGS = "/etc/openperouter/openperouter.yaml"
NODE_CONFIG = "/etc/openperouter/node-config.yaml"
UNDERLAY = f"{CONFIGS}/openpe_underlay.yaml"
#: The router's address in the fabric.
ROUTER = "192.168.11.3"
#: os.EX_CONFIG, by the name that operators know.
UNUSABLE = "78"

EVPN = session("perouter", "show bgp l2vpn evpn summary", LEAF)
PLAIN = ping(PLAIN_HOST)
ROUTED = ping(FABRIC_HOST_V4)


def replaced(node: Machine, pid: str) -> bool:
    """Say whether another supervisor than ``pid`` is ready."""
    return active(node) and property_of(node, "MainPID") not in {pid, "0"}


def restarted(node: Machine, times: int) -> bool:
    """Say whether systemd has started a supervisor again so many times."""
    return property_of(node, "NRestarts") == str(times) and property_of(node, "MainPID") != "0"


def seconds_before_restart(node: Machine) -> float:
    """Return how long systemd will wait before it starts the supervisor again."""
    unit = "/org/freedesktop/systemd1/unit/openperouter_2eservice"
    output = node.remote.run(
        f"busctl get-property org.freedesktop.systemd1 {unit} org.freedesktop.systemd1.Service RestartUSecNext"
    ).stdout
    return int(output.split()[1]) / 1_000_000


def journal_since(node: Machine, since: str) -> str:
    """Return what the daemon has logged since a time in seconds."""
    return node.remote.run(f"journalctl --no-pager -u openperouter --since=@{since} -o cat").stdout


def test_killing_the_supervisor_loses_no_packet(node: Machine) -> None:
    killed = property_of(node, "MainPID")
    with no_ping_lost(node, FABRIC_HOST_V4):
        node.remote.run("systemctl kill --kill-whom=main --signal=KILL openperouter")
        eventually(lambda: replaced(node, killed), "the supervisor is ready again", seconds=300)


def test_a_frozen_supervisor_is_replaced_and_the_next_one_repairs(node: Machine) -> None:
    frozen = property_of(node, "MainPID")
    with no_ping_lost(node, FABRIC_HOST_V4):
        node.remote.run("systemctl kill --kill-whom=main --signal=STOP openperouter")
        node.remote.run("ip link delete dev pt-host")
        assert not PLAIN(node).ok
        eventually(lambda: replaced(node, frozen), "systemd's watchdog replaced it", seconds=300)
    assert "Watchdog timeout" in node.remote.run("journalctl --no-pager -u openperouter --since=-10min -o cat").stdout
    eventually(lambda: PLAIN(node).ok, "what was deleted meanwhile works again")


def test_a_router_mac_that_the_kernel_has_lost_is_repaired_beside_other_traffic(node: Machine) -> None:
    """FRR shows the VNI as up and its routes as installed all the time."""
    since = node.remote.run("date +%s").stdout.strip()
    shown = node.remote.run("bridge -n perouter fdb show dev vni100").stdout.splitlines()
    [rmac] = {line.split()[0] for line in shown if " dst 100.64.0.1 " in line}
    with no_ping_lost(node, PLAIN_HOST):
        node.remote.run(f"bridge -n perouter fdb del {rmac} dev vni100 dst 100.64.0.1 self")
        node.remote.run(f"bridge -n perouter fdb del {rmac} dev vni100 master")
        assert not ROUTED(node).ok
        eventually(lambda: ROUTED(node).ok, "the VNI forwards again")
    reason = f"vni100 has no bridge entry for the router MAC {rmac} of 100.64.0.1"
    repaired = f"FRR removes this VNI and adds it again, because it does not work: {reason}"
    assert repaired in journal_since(node, since)
    eventually(lambda: "VNI works" in journal_since(node, since), "the repair is reported")


def test_a_supervisor_that_dies_while_a_reloads_command_runs_is_started_again(node: Machine) -> None:
    """systemd has no failure to restart for: the last that it sees is the command's success."""
    directory = "/run/systemd/system/openperouter.service.d"
    node.remote.run(f"mkdir -p {directory}")
    # Without systemd's own signal the death does not interrupt a reload that the daemon has announced.
    write(node, f"{directory}/dies.conf", "[Service]\nType=notify\nExecReload=\nExecReload=/bin/kill -KILL $MAINPID\n")
    node.remote.run("systemctl daemon-reload")
    killed = property_of(node, "MainPID")
    try:
        with no_ping_lost(node, FABRIC_HOST_V4):
            node.remote.run("systemctl reload openperouter", check=False)
            eventually(lambda: replaced(node, killed), "the supervisor is ready again", seconds=300)
    finally:
        gone = f"rm {directory}/dies.conf && rmdir --ignore-fail-on-non-empty {directory}"
        node.remote.run(f"{gone} && systemctl daemon-reload")


def test_settings_that_cannot_be_used_need_only_be_corrected(node: Machine) -> None:
    settings = node.remote.run(f"cat {SETTINGS}").stdout
    with no_ping_lost(node, FABRIC_HOST_V4):
        write(node, SETTINGS, settings + "logLevel: [\n")
        try:
            refused = node.remote.run("systemctl restart openperouter", seconds=300, check=False)
            assert refused.returncode != 0
            eventually(lambda: property_of(node, "ExecMainStatus") == UNUSABLE, "it says why")
        finally:
            write(node, SETTINGS, settings)
        eventually(lambda: active(node), "the next start finds them corrected", seconds=300)


def test_a_first_configuration_that_is_half_written_need_only_be_completed(node: Machine) -> None:
    text = node.remote.run(f"cat {NODE_CONFIG}").stdout
    with no_ping_lost(node, FABRIC_HOST_V4):
        node.remote.run("systemctl stop openperouter", seconds=300)
        # As if nothing had been in force before; the data plane is there, so that the test can watch it.
        node.remote.run("cd /var/lib/openperouter && rm last-good.json in-force.json node.json")
        write(node, NODE_CONFIG, "nodeIndex: {index:\n")
        try:
            refused = node.remote.run("systemctl start openperouter", seconds=300, check=False)
            assert refused.returncode != 0
            eventually(lambda: property_of(node, "ExecMainStatus") == UNUSABLE, "it says why")
        finally:
            write(node, NODE_CONFIG, text)
        eventually(lambda: active(node), "the next start finds it complete", seconds=300)


def test_a_supervisor_that_keeps_dying_is_restarted_within_ten_seconds_indefinitely(node: Machine) -> None:
    deaths = 6
    node.remote.run("systemctl restart openperouter", seconds=300)
    waits = []
    with no_ping_lost(node, FABRIC_HOST_V4):
        for death in range(1, deaths + 1):
            waits.append(seconds_before_restart(node))
            node.remote.run("systemctl kill --kill-whom=main --signal=KILL openperouter")
            eventually(partial(restarted, node, death), f"restart number {death}")
        eventually(lambda: active(node), "the supervisor is ready again", seconds=300)
    waits.append(seconds_before_restart(node))
    assert waits[0] == 1
    assert waits == sorted(waits)
    assert waits[-1] == 10
    assert property_of(node, "StartLimitIntervalUSec") == "0"


def test_frr_restarts_configured_without_the_supervisor(node: Machine) -> None:
    node.remote.run("systemctl stop openperouter", seconds=300)
    try:
        node.remote.run("systemctl restart frr@perouter", seconds=300)
        eventually(lambda: EVPN(node).ok, "the EVPN session is back")
    finally:
        node.remote.run("systemctl start openperouter", seconds=300)
    assert EVPN(node).ok


def test_stopping_the_supervisor_leaves_the_data_plane(node: Machine) -> None:
    with no_ping_lost(node, FABRIC_HOST_V4):
        node.remote.run("systemctl stop openperouter", seconds=300)
        try:
            assert "vni100" in node.remote.run("ip -n perouter link").stdout
            assert ping(FABRIC_HOST_V4, count=20)(node).ok
        finally:
            node.remote.run("systemctl start openperouter", seconds=300)


def test_frr_is_bounded_and_its_daemons_are_started_again_inside(node: Machine) -> None:
    node.remote.run("systemd-analyze security --no-pager --threshold=50 frr@perouter.service")
    owners = node.remote.run("stat -c '%U:%G' /etc/frr/perouter /etc/frr/perouter/daemons /etc/frr/perouter/frr.conf")
    assert {line.partition(":")[0] for line in owners.stdout.splitlines()} == {"root"}
    # BGP is all that listens: no terminals.
    listening = node.remote.run("ip netns exec perouter ss -Htln").stdout.splitlines()
    assert {line.split()[3].rpartition(":")[2] for line in listening} == {"179"}
    inside = "nsenter --mount --target $(cat /run/frr/perouter/watchfrr.pid)"
    for directory in ("/etc/frr/perouter", "/etc/cron.d", "/usr/bin"):
        assert node.remote.run(f"{inside} touch {directory}/evil", check=False).returncode != 0
    written = node.remote.run(f"cat {UNDERLAY}").stdout
    write(node, UNDERLAY, written.rstrip() + "\n    gracefulRestart: {}\n")
    try:
        reload(node)
        eventually(lambda: EVPN(node).ok, "the EVPN session is back")
        bgpd = node.remote.run("cat /run/frr/perouter/bgpd.pid").stdout
        node.remote.run(f"kill -KILL {bgpd}")
        pid = "cat /run/frr/perouter/bgpd.pid"
        eventually(lambda: node.remote.run(pid, check=False).stdout != bgpd, "bgpd runs again")
        eventually(lambda: EVPN(node).ok, "the EVPN session is back")
        eventually(lambda: PLAIN(node).ok, "packets are forwarded")
        # The sandbox leaves what a graceful restart needs: bgpd says that it restarted, and that forwarding continued.
        shown = vtysh_json(node, "leaf", f"show bgp neighbors {ROUTER} graceful-restart")[ROUTER]
        assert (shown["rBit"], shown["ipv4Unicast"]["fBit"]) == (True, True), shown
    finally:
        write(node, UNDERLAY, written)
        reload(node)
    eventually(lambda: EVPN(node).ok, "the EVPN session is back")


def test_a_management_daemon_that_hangs_is_ended_from_the_daemons_sandbox(node: Machine) -> None:
    """The sandbox has no capability for it; the daemon itself waits for minutes before it does this."""
    hanging = node.remote.run("cat /run/frr/perouter/mgmtd.pid").stdout.strip()
    code = (
        "import sys, pathlib; sys.path.insert(0, '/usr/share/openperouter'); import trio; "
        "from actors.lib.frr.processes import end_daemon; "
        f"assert trio.run(end_daemon, pathlib.Path('/run/frr/perouter'), 'mgmtd', {hanging})"
    )
    unit, copy = "/usr/lib/systemd/system/openperouter.service", "/run/systemd/system/end-mgmtd.service"
    own = "Wants|Before|After|Type|NotifyAccess|Watchdog.*|Restart.*|ExecReload"
    script = f'sed -E "/^({own})=/d" {unit} >{copy} && cat >>{copy} && systemctl daemon-reload'
    node.remote.run(script, stdin=f'[Service]\nExecStart=\nType=oneshot\nExecStart=/usr/bin/python3 -c "{code}"\n')
    try:
        node.remote.run(f"kill -STOP {hanging}")
        node.remote.run("systemctl start end-mgmtd", seconds=300)
        eventually(lambda: node.remote.run(f"test -e /proc/{hanging}", check=False).returncode != 0, "it has ended")
        pid = "cat /run/frr/perouter/mgmtd.pid"
        eventually(lambda: node.remote.run(pid, check=False).stdout.strip() not in {"", hanging}, "watchfrr starts it")
    finally:
        node.remote.run(f"kill -KILL {hanging}; rm {copy}; systemctl daemon-reload", check=False)
    eventually(lambda: EVPN(node).ok, "the EVPN session is there")
    # A change that goes through mgmtd.
    node.remote.run("systemctl restart openperouter", seconds=300)
