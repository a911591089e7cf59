"""Ten thousand objects of each kind, from namespaces that anyone may write, leave the daemon within bounds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from actors.desired.reconcile import Known, decide
from actors.status_writer.node_state import NodeState
from actors.status_writer.node_status_builder import build_status
from actors.status_writer.object_status import ObjectTracker
from config.api import ApiCredentials, ApiNode, ApiObject, ApiSnapshot
from config.precedence import NOTHING_IN_FORCE
from config.problems import Kind
from config.resolve.grants import NAMED, Grants
from config.settings import MaxResources, Settings

from .examples import OWN, UNDERLAY, files, l3vni, underlay

MANY = 10_000
LIMITS = MaxResources()
#: Of one processor, for all that one change of the API causes in the main thread; seen: a second.
MOST_SECONDS = 20.0
#: etcd refuses larger requests.
MOST_BYTES = 1_500_000
SPECS: dict[Kind, Callable[[int], Any]] = {
    Kind.UNDERLAY: lambda number: UNDERLAY,
    Kind.L3VNI: lambda number: {"vrf": f"v{number}", "vni": number + 1000},
    Kind.L2VNI: lambda number: {"vni": number + 100_000},
    Kind.L3PASSTHROUGH: lambda number: {
        "hostSession": {"asn": 64514, "hostASN": 64515, "localCIDR": {"ipv4": "172.26.0.0/24"}}
    },
    Kind.RAW_FRR_CONFIG: lambda number: {"rawConfig": "quit"},
}


def flood() -> ApiSnapshot:
    objects = [
        ApiObject(kind, f"tenant-{number % 7}", f"{number:05}", uid=f"{kind}-{number}", generation=1, spec=spec(number))
        for kind, spec in SPECS.items()
        for number in range(MANY)
    ]
    return ApiSnapshot(ApiNode("node-a", "uid"), tuple(objects), live=True, synced_at=1.0)


def test_ten_thousand_objects_of_each_kind() -> None:
    own = files(underlay(), l3vni("own", 100))
    first = decide(Known(own, None, None, NOTHING_IN_FORCE), None, Grants.of(Settings(namespace=OWN)))
    assert first.state is not None
    begin = time.process_time()
    known = Known(own, flood(), None, first.standing)
    decision = decide(known, first.state, Grants.of(Settings(namespace=OWN)))
    state = decision.state
    assert state is not None
    # What the files have is in force, and the tenants' places are shared.
    assert (state.underlay, state.l3vnis[0].vrf) == (first.state.underlay, "own")
    assert (len(state.l3vnis), len(state.l2vnis), state.raw_frr) == (LIMITS.l3vnis, LIMITS.l2vnis, ())
    assert len({one.resource.namespace for one in state.l3vnis}) == 8
    limited = sum(LIMITS.model_dump().values())
    assert len(state.problems) <= limited + len(Kind) * (NAMED + 1)
    # The next change, with all of it in force, and what is reported.
    again = decide(replace(known, standing=decision.standing), state, Grants.of(Settings(namespace=OWN)))
    assert again.standing == decision.standing
    node = NodeState(OWN, ApiCredentials("https://x"), flood(), ApiNode("node-a", "uid"), state)
    status = build_status(node, ObjectTracker().update(node), now=0.0, previous=())
    assert len(json.dumps(status.to_data())) < MOST_BYTES
    assert time.process_time() - begin < MOST_SECONDS
