"""``openperouter show``: readable, complete, and without any secret."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from actors.lib.frr.daemon_socket import DaemonSockets
from config.problems import Kind
from supervisor.cli import main
from supervisor.cli.terminal import moment
from supervisor.events import changes
from supervisor.operations.documents import without_secrets
from supervisor.runtime.faults import DependencyFault
from tests.supervisor.cli.examples import (
    READY,
    SECRETS,
    SilentDaemon,
    answering,
    api_l3vni,
    remember_api,
    status_answer,
)

#: How the daemon begins its answer to ``events``.
HEAD: Final[dict[str, Any]] = {"events": {"instance": "a", "first": 1, "last": 0}}


def show(settings: Path, *words: str) -> int:
    return main(["--settings", str(settings), "show", *words])


def test_desired_shows_the_state_and_where_it_is_configured(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(settings, "desired") == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["node_index"] == 3
    assert document["underlay"]["vteps"] == ["100.65.0.3/32"]
    assert document["l3vnis"][0]["origin"].endswith("openpe_l3vni.yaml:2:5")


def test_desired_as_json_is_the_same(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(settings, "desired")
    from_yaml = yaml.safe_load(capsys.readouterr().out)
    show(settings, "desired", "--json")
    assert json.loads(capsys.readouterr().out) == from_yaml


def test_config_shows_settings_and_files(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(settings, "config") == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["settings"]["runDir"] == str(settings.parent / "run")
    configs = settings.parent / "configs"
    assert document["files"][str(configs / "openpe_l3vni.yaml")] == {"l3vnis": [{"vni": 100, "vrf": "red"}]}


def test_config_leaves_out_nothing_that_cannot_be_read(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = settings.parent / "configs"
    with monkeypatch.context() as as_other_user:
        as_other_user.setattr("os.access", lambda path, _mode: Path(path) != configs)
        assert show(settings, "config") == 77
    assert capsys.readouterr() == ("", f"openperouter: permission denied: {configs}; most commands need root\n")
    settings.write_text(settings.read_text().replace(f"configsDir: {configs}", f"configsDir: {settings}"))
    assert show(settings, "config") == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["files"][str(settings)] == "cannot be read: Not a directory"


def test_the_intended_frr_configuration_can_be_shown_without_frr(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(settings, "frr", "--intended") == 0
    assert "neighbor 192.168.11.2 remote-as 64512" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [("desired",), ("desired", "--json"), ("config",), ("config", "--json"), ("frr", "--intended")],
)
def test_no_secret_is_shown(settings: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert show(settings, *words) == 0
    shown = capsys.readouterr()
    for secret in SECRETS:
        assert secret not in shown.out + shown.err
    assert "********" in shown.out


def test_a_broken_file_is_not_shown_since_a_secret_could_be_anywhere_in_it(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings.parent / "configs" / "openpe_underlay.yaml"
    file.write_text("password: [hunter2hunter2\n")
    assert show(settings, "config") == 0
    shown = capsys.readouterr().out
    assert "hunter2hunter2" not in shown
    assert "cannot be shown" in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"Password": "x"}, {"Password": "********"}),
        ({"passwordSecret": "file-name"}, {"passwordSecret": "file-name"}),
        ({"a": [{"apiToken": {"deep": "x"}}]}, {"a": [{"apiToken": "********"}]}),
        ({"password": None}, {"password": None}),
        ({"text": " neighbor 1.2.3.4 password x"}, {"text": " neighbor 1.2.3.4 password ********"}),
        ({1: True}, {1: True}),
    ],
)
def test_secrets_are_found_by_key_and_in_frr_text(value: object, shown: object) -> None:
    assert without_secrets(value) == shown


@pytest.mark.parametrize(("words", "code"), [(("frr",), 69), (("kernel",), 69), (("route", "192.0.2.1"), 69)])
def test_an_unavailable_dependency_is_one_message_and_no_traceback(
    settings: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int
) -> None:
    assert show(settings, *words) == code
    error = capsys.readouterr().err
    assert error.startswith("openperouter: ")
    assert error.count("\n") == 1


def test_an_unusable_configuration_has_no_desired_state(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.parent / "configs" / "openpe_underlay.yaml").write_text("underlays:\n  - asn: 0\n")
    assert show(settings, "desired") == 78
    assert "no usable configuration" in capsys.readouterr().err


def test_saved_api_objects_are_part_of_the_desired_state(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember_api(settings.parent, api_l3vni("blue", 200), synced_at=1000.0)
    assert show(settings, "desired") == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["remembered"] == {"objects": 1, "synced_at": 1000.0}
    assert [vni["origin"].rpartition("/")[2] for vni in document["l3vnis"]] == ["openpe_l3vni.yaml:2:5", "blue@7"]


def test_a_damaged_store_of_last_good_files_hides_no_file(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = settings.parent / "state"
    state.mkdir(exist_ok=True)
    (state / "last-good.json").write_bytes(b"\xff\xfe")
    assert show(settings, "desired") == 0
    assert yaml.safe_load(capsys.readouterr().out)["underlay"]["vteps"] == ["100.65.0.3/32"]


def configure_host_session(settings: Path) -> None:
    """Make the L3VNI what the example's status reports of it; the node's index is 0."""
    session = "hostSession: {asn: 64514, hostASN: 64515, localCIDR: {ipv4: 172.27.10.0/24}}"
    file = settings.parent / "configs" / "openpe_l3vni.yaml"
    file.write_text(f"l3vnis:\n  - vni: 100\n    vrf: red\n    {session}\n")
    (settings.parent / "node-config.yaml").write_text("nodeIndex:\n  index: 0\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("session", "192.168.11.2"), "  state          Established for 1h2m"),
        (("session", "red"), "  host's end     host-e-100, 172.27.10.2/24"),
        (("vni", "100"), "  router's end   172.27.10.1/24, AS 64514"),
        (("vni", "blue"), "  remote VTEPs   2"),
        (("l2vni", "blue"), "  remote VTEPs   2"),
        (("topology",), "   │  └─ host 172.27.10.2/24 on host-e-100, AS 64515: DOWN (Active)"),
        (("topology", "--dot"), '  n1 [label="NIC toswitch1, MTU 9000"];'),
    ],
)
def test_parts_of_the_status_have_the_addresses_of_the_configuration(
    settings: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    configure_host_session(settings)
    events = None if words[0] == "topology" else [HEAD]
    with answering(settings.parent / "run", [status_answer(READY)], events=events):
        assert show(settings, *words) == 0
    shown = capsys.readouterr()
    assert line in shown.out.splitlines()
    assert shown.err == ""


def test_a_session_and_a_vni_have_their_history(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = replace(READY.sessions[0], state="Idle", detail="the peer sends no BFD packets")
    broken = replace(READY.vnis[0], ok=False, detail="down: vni100 is down")
    [blue] = [vni for vni in READY.vnis if vni.resource.kind is Kind.L2VNI]
    segment = replace(blue, ok=False, detail="host bridge br0 is missing")
    worse = replace(READY, sessions=(lost, *READY.sessions[1:]), vnis=(broken, segment))
    found = enumerate((*changes(READY, worse), *changes(worse, READY)), start=1)
    events: list[dict[str, Any]] = [HEAD, *(event.to_data(number) for number, event in found)]
    expected = {
        ("session", "192.168.11.2"): ["down: the peer sends no BFD packets", "Established"],
        ("vni", "100"): ["does not work: down: vni100 is down", "works"],
        ("l2vni", "blue"): ["does not work: host bridge br0 is missing", "works"],
    }
    at = moment(READY.updated_at)
    for words, (fault, good) in expected.items():
        requests: list[Any] = []
        with answering(settings.parent / "run", [status_answer(READY)], requests, events=events):
            assert show(settings, *words) == 0
        (settings.parent / "run" / "control.sock").unlink()
        lines = capsys.readouterr().out.splitlines()
        newest = [f"  last error     {at} {fault}", f"  history        {at} {fault}", f"  history        {at} {good}"]
        assert lines[-3:] == newest
        assert [request["verb"] for request in requests] == ["status", "events"]
    with answering(settings.parent / "run", [status_answer(READY)], events=events):
        assert show(settings, "vni", "100", "--json") == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["last_error"]["message"] == "does not work: down: vni100 is down"
    assert [event["message"] for event in document["history"]] == ["does not work: down: vni100 is down", "works"]


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (None, "the daemon is not running"),
        ([{"error": "busy"}], "the daemon's answer is not an event: {'error': 'busy'}"),
    ],
)
def test_without_the_history_the_rest_is_shown(
    settings: Path, capsys: pytest.CaptureFixture[str], events: list[dict[str, Any]] | None, why: str
) -> None:
    with answering(settings.parent / "run", [status_answer(READY)], events=events):
        assert show(settings, "session", "192.168.11.2") == 0
    shown = capsys.readouterr()
    assert "  state          Established for 1h2m\n" in shown.out
    assert "history" not in shown.out
    assert shown.err == f"openperouter: without the history: {why}\n"


def test_parts_of_the_status_are_json_as_well(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure_host_session(settings)
    for words, key in ((("session", "red"), "host_end"), (("vni", "100"), "sessions")):
        with answering(settings.parent / "run", [status_answer(READY)]):
            assert show(settings, *words, "--json") == 0
        (document,) = json.loads(capsys.readouterr().out)
        (end,) = (one["host_end"] for one in ([document] if key == "host_end" else document[key]))
        assert end["host"] == "172.27.10.2/24"
        (settings.parent / "run" / "control.sock").unlink()
    with answering(settings.parent / "run", [status_answer(READY)]):
        assert show(settings, "topology", "--json") == 0
    assert json.loads(capsys.readouterr().out)["children"][0]["name"] == "NIC toswitch1, MTU 9000"


def test_an_unusable_configuration_hides_nothing_that_the_daemon_reports(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (settings.parent / "configs" / "openpe_underlay.yaml").write_text("underlays:\n  - asn: 0\n")
    with answering(settings.parent / "run", [status_answer(READY)]):
        assert show(settings, "vni", "red") == 0
    shown = capsys.readouterr()
    assert "  host's end     host-e-100\n" in shown.out
    assert "without the addresses of host ends" in shown.err


class RouteFrr:
    """What zebra and bgpd say of any prefix: a connected network in the default VRF."""

    async def texts(self, *commands: str, daemon: str) -> list[str]:
        hop = {"fib": True, "directlyConnected": True, "interfaceName": "toswitch1", "active": True}
        entry = {
            "protocol": "connected",
            "vrfName": "default",
            "selected": True,
            "installed": True,
            "uptime": "01:00:00",
        }
        known = {"zebra": {"192.168.11.0/24": [entry | {"nexthops": [hop]}]}, "bgpd": {"vrfs": {"default": {}}}}
        return [json.dumps(known[daemon]) for _ in commands]


def test_a_route_is_shown(settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DaemonSockets, "of", lambda _settings: RouteFrr())
    (settings.parent / "run" / "state.json").write_text(READY.to_json())
    page = [
        "route 192.168.11.0/24 in VRF default",
        "  zebra     connected, distance 0, metric 0, for 01:00:00: selected and installed",
        "  next hop  directly connected on toswitch1",
    ]
    for words in ((), ("--vrf", "default")):
        assert show(settings, "route", "192.168.11.2", *words) == 0
        assert capsys.readouterr().out.splitlines() == page
    assert show(settings, "route", "192.168.11.2", "--json") == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["vrf"], document["zebra"][0]["hops"][0]["device"]) == ("default", "toswitch1")
    # What bgpd does not have is no VRF of the router's, whatever the status says.
    assert show(settings, "route", "192.168.11.2", "--vrf", "100") == 64
    assert capsys.readouterr().err == "openperouter: FRR has no BGP in VRF red, and no route to 192.168.11.2 there\n"


def test_a_route_is_shown_without_bgpd(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Alone(RouteFrr):
        async def texts(self, *commands: str, daemon: str) -> list[str]:
            if daemon == "bgpd":
                raise DependencyFault("bgpd is not running")
            return await super().texts(*commands, daemon=daemon)

    monkeypatch.setattr(DaemonSockets, "of", lambda _settings: Alone())
    assert show(settings, "route", "192.168.11.2") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("route 192.168.11.0/24 in VRF default\n")
    assert shown.err == "openperouter: without the paths of BGP: bgpd is not running\n"


def test_zebras_routes_are_printed_before_bgpds_late_answer_comes(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = SilentDaemon(capsys)

    class Silent(RouteFrr):
        async def texts(self, *commands: str, daemon: str) -> list[str]:
            if daemon == "bgpd":
                await leftover.query()
                raise DependencyFault("bgpd did not answer within 20 s")
            return await super().texts(*commands, daemon=daemon)

    monkeypatch.setattr(DaemonSockets, "of", lambda _settings: Silent())
    assert show(settings, "route", "192.168.11.2") == 0
    assert leftover.shown_before.startswith("route 192.168.11.0/24 in VRF default\n")


def test_no_route_is_an_exit_code(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Empty(RouteFrr):
        async def texts(self, *commands: str, daemon: str) -> list[str]:
            return ["{}\n" for _ in commands]

    monkeypatch.setattr(DaemonSockets, "of", lambda _settings: Empty())
    assert show(settings, "route", "192.0.2.0/24") == 1
    assert capsys.readouterr().err == "openperouter: there is no route to 192.0.2.0/24 in any VRF\n"


def test_a_route_that_is_in_evpn_only_says_so_and_is_none(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = {"valid": True, "bestpath": {"overall": True}, "peer": {"peerId": "192.168.11.2"}, "vni": "200"}
    evpn = {"10.0.0.200:3": {"ip": "10.60.0.0", "ipLen": 24, "paths": [path]}}

    class Foreign(RouteFrr):
        async def texts(self, *commands: str, daemon: str) -> list[str]:
            return [json.dumps(evpn) if "l2vpn evpn 1" in command else "{}" for command in commands]

    monkeypatch.setattr(DaemonSockets, "of", lambda _settings: Foreign())
    assert show(settings, "route", "10.60.0.7") == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[:2] == [
        "EVPN route 10.60.0.0/24, not imported",
        "  why       it has no route target",
    ]
    assert shown.err == "openperouter: there is no route to 10.60.0.7 in any VRF\n"
    assert show(settings, "route", "10.60.0.7", "--json") == 1
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["vrf"], document["prefix"], document["not_imported"]) == (
        "",
        "10.60.0.0/24",
        "it has no route target",
    )


def test_a_dead_daemons_last_status_is_shown_as_history(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.parent / "run" / "state.json").write_text(READY.to_json())
    assert show(settings, "session", "192.168.11.2") == 3
    shown = capsys.readouterr()
    assert "the daemon is not running; what follows is its last status, " in shown.err
    assert "Established for 1h2m" in shown.out


def test_without_any_status_there_is_nothing_to_show(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("topology",), ("vni", "100"), ("session", "red")):
        assert show(settings, *words) == 3
        assert "the daemon is not running, and left no status in " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("session",), "give a NAME to session"),
        (("vni",), "give a NAME to vni"),
        (("route",), "give a NAME to route"),
        (("session", "red", "--vrf", "red"), "--vrf is for route"),
        (("route", "red"), "red is not an address or prefix, such as 198.51.100.7 or 198.51.100.0/24"),
        (("topology", "red"), "topology takes no NAME"),
        (("vni", "100", "--dot"), "vni has no output dot, only text, json, yaml"),
        (("session", "red", "--output", "svg"), "session has no output svg, only text, json, yaml"),
        (("frr", "--json"), "frr has no output json, only text"),
        (("peer-config", "red", "--output", "yaml"), "peer-config has no output yaml, only text"),
        (("desired", "--intended"), "--intended is for frr"),
    ],
)
def test_wrong_usage_is_refused(
    settings: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert show(settings, *words) == 64
    assert capsys.readouterr().err == f"openperouter: {message}\n"


def test_a_mistyped_name_gets_a_suggestion(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(settings.parent / "run", [status_answer(READY)]):
        assert show(settings, "vni", "blu") == 64
    assert capsys.readouterr().err == "openperouter: there is no VNI blu: did you mean blue?\n"
