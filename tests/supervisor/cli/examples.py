"""A status with something of everything, a daemon with scripted answers, and a configuration to read."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from config.api import ApiObject, ApiSnapshot
from config.desired import ResourceFailure
from config.outcomes import InterfaceHealth, SessionHealth, VniHealth
from config.precedence import Held
from config.problems import Kind, Origin, Problem, Reason, ResourceId, Severity
from config.status import ActorStatus, ApiStatus, Generations, Status, UnderlayStatus
from config.store.api_snapshot_file import SavedSnapshot, to_json

SECRETS = ("hunter2hunter2", "topsecretword", "commentsecret")

RED = ResourceId(Kind.L3VNI, "ns", "red", label="red")
BLUE = ResourceId(Kind.L2VNI, "ns", "blue")
RED_ORIGIN = Origin("openpe_vnis.yaml", 2, 5)

READY = Status(
    pid=42,
    started_at=1000.0,
    updated_at=2000.0,
    version="0.1.0",
    node="n1",
    node_index=0,
    phase="running",
    ready=True,
    summary="ready: 1 session up (1 down), 2 VNIs, generation 4",
    generations=Generations(4, 4, 4, 4),
    actors=(
        ActorStatus("frr", "running", 0, mode="working", activity="asking FRR"),
        ActorStatus("netlink", "running", 2, "netns missing"),
    ),
    daemons={"bgpd": True, "zebra": True},
    underlay=UnderlayStatus(
        "underlay",
        "openpe_underlay.yaml:2:5",
        64514,
        "10.0.0.1",
        ("100.65.0.1/32",),
        (InterfaceHealth("toswitch1", True, True, 9000),),
        9000,
    ),
    sessions=(
        SessionHealth(
            "192.168.11.2", "default", 64512, "Established", 3725, {"ipv4Unicast": 3, "l2VpnEvpn": 8}, "fabric", "up"
        ),
        SessionHealth("172.27.10.2", "red", 64515, "Active", role="host"),
        SessionHealth("172.31.0.0/24", "default", 0, "Listening"),
    ),
    vnis=(
        VniHealth(RED, 100, "L3", "red", ok=True, origin=RED_ORIGIN, routes=7),
        VniHealth(
            BLUE,
            110,
            "L2",
            "red",
            ok=True,
            origin=Origin("openpe_vnis.yaml", 9, 5),
            remote_vteps=2,
            evpn_received={"2": 14, "3": 2},
            evpn_advertised={"2": 4, "3": 1},
        ),
    ),
    api=ApiStatus("reachable", "https://192.0.2.1:6443", since=1500.0, source="server", live=True, objects=12),
)

DEGRADED = Status(
    pid=42,
    started_at=1000.0,
    updated_at=2000.0,
    version="0.1.0",
    node="n1",
    node_index=0,
    phase="degraded",
    ready=True,
    summary="degraded: L3VNI green: vni 100 is taken (and 2 more)",
    generations=Generations(5, 5, 5, 5),
    actors=(ActorStatus("frr", "backoff", 3, "boom"),),
    daemons={"bgpd": False, "zebra": True},
    vnis=(VniHealth(RED, 100, "L3", "red", ok=False, detail="down: vni100 is down", origin=RED_ORIGIN),),
    problems=(
        Problem(
            "100 is taken",
            Origin("openpe_vnis.yaml", 12, 9),
            "l3vnis[1].vni",
            resource=ResourceId(Kind.L3VNI, "ns", "green", label="green"),
            in_force="it is left out",
        ),
        Problem("spelled vrf", Origin("openpe_vnis.yaml", 3, 3), "VRF", Severity.WARNING),
    ),
    failures=(ResourceFailure(RED, Reason.OVERLAY_ATTACHMENT_FAILED, "down: vni100 is down", RED_ORIGIN),),
    notes=("bgpd is not running",),
    remarks=("the API server is unreachable",),
    api=ApiStatus(
        "unreachable",
        "https://192.0.2.1:6443",
        "no route to host",
        since=1500.0,
        source="server",
        objects=1,
        snapshot_age_seconds=500.0,
    ),
)


@contextmanager
def answering(
    directory: Path,
    answers: Sequence[dict[str, Any]],
    requests: list[Any] | None = None,
    *,
    events: Sequence[dict[str, Any]] | None = None,
) -> Iterator[None]:
    """Serve one client at ``directory``'s control socket: read its request, send the answers, close.

    With ``events`` another client gets these; without, the socket is closed then.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "control.sock"))
        server.listen(1)

        def serve() -> None:
            scripts = [answers] if events is None else [answers, events]
            for script in scripts:
                connection, _ = server.accept()
                with connection:
                    request = json.loads(connection.recv(4096))
                    if script is scripts[-1]:
                        server.close()
                    if requests is not None:
                        requests.append(request)
                    connection.sendall(b"".join(json.dumps(answer).encode() + b"\n" for answer in script))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(5)


def status_answer(status: Status) -> dict[str, Any]:
    return {"status": json.loads(status.to_json())}


def write_settings(directory: Path) -> Path:
    """Write settings that keep everything inside a directory; return their path."""
    for name in ("run", "state", "configs"):
        (directory / name).mkdir()
    path = directory / "openperouter.yaml"
    path.write_text(
        f"runDir: {directory}/run\nstateDir: {directory}/state\nconfigsDir: {directory}/configs\n"
        f"nodeConfigFile: {directory}/node-config.yaml\nvtysh: {directory}/no-vtysh\nnetns: openperouter-not-there\n"
    )
    (directory / "node-config.yaml").write_text("nodeIndex:\n  index: 3\n")
    return path


UNDERLAY = """\
underlays:
  - asn: 64514
    interfaces:
      - type: NetworkDevice
        networkDevice:
          interfaceName: toswitch1
    neighbors:
      - asn: 64512
        address: 192.168.11.2
        password: hunter2hunter2 # not commentsecret
    tunnelEndpoint:
      cidrs:
        - 100.65.0.0/24
rawfrrconfigs:
  - priority: 10
    rawConfig: |
      router bgp 64514
       neighbor 10.0.0.9 password topsecretword
"""

L3VNI = """\
l3vnis:
  - vni: 100
    vrf: red
"""


def remember_api(
    directory: Path, *objects: ApiObject, node: str = "", synced_at: float = 0.0, first: bool = False
) -> None:
    """Write what the daemon remembers of the API beside the settings; ``first``: the objects were there first."""
    snapshot = ApiSnapshot(objects=objects, synced_at=synced_at)
    standing = {one.id: Held("") for one in objects} if first else {}
    memory = SavedSnapshot(node or socket.gethostname(), snapshot, standing)
    (directory / "state" / "api-snapshot.json").write_text(to_json(memory))


def api_l3vni(name: str, vni: int) -> ApiObject:
    spec = {"vrf": name, "vni": vni}
    return ApiObject(Kind.L3VNI, "tenant", name, resource_version="7", generation=1, spec=spec)


class SilentDaemon:
    """One of FRR's daemons that does not answer: a session that is given up stays open when the command ends.

    ``shown_before`` is what the command had printed by then.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.shown_before = ""

    async def query(self) -> None:
        """Give up a session."""
        trio.lowlevel.spawn_system_task(self._linger)
        await trio.lowlevel.checkpoint()

    async def _linger(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.shown_before = self._capsys.readouterr().out
