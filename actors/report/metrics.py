"""The status as numbers, in Prometheus' text format: for node_exporter's textfile collector, or any that reads files.

Pure: the same status gives the same text. Names and labels are an interface: they change only in meaning-preserving
ways. Nothing is here that is not in the status, so no secret can be; peers, tenants and objects have no series of their
own, so the number of series does not grow with what users configure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from config.problems import Severity
from config.status import Phase, Status

_PREFIX: Final = "openperouter"
_REACHABLE: Final = "reachable"
#: Sessions that cannot be up: ranges from which neighbours dial in.
_LISTENING: Final = "Listening"
_ROLES: Final = ("fabric", "host")
_TYPES: Final = ("L2", "L3")


def metrics_text(status: Status) -> str:
    """Return the whole file."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(tuple(_families(status))))
    return generate_latest(registry).decode()


class _Collected(Collector):
    """What the library wants to ask for metrics that are there already."""

    def __init__(self, families: tuple[Metric, ...]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._families


def _families(status: Status) -> Iterator[Metric]:
    yield InfoMetricFamily(f"{_PREFIX}_build", "Version of the program.", {"version": status.version})
    yield _one("start_timestamp_seconds", "When the daemon was started.", status.started_at)
    yield _one(
        "status_timestamp_seconds", "When this was true; hours ago means that the daemon is dead.", status.updated_at
    )
    yield _one("ready", "Whether the newest configuration is in force and verified.", status.ready)
    phases = {phase: status.phase == phase for phase in get_args(Phase)}
    yield _each("phase", "Which of the phases it is in.", "phase", phases)
    reached = status.generations
    stages = {"desired": reached.desired, "frr": reached.frr, "kernel": reached.kernel, "verified": reached.verified}
    yield _each(
        "generation", "The newest generation of the configuration that each stage has reached.", "stage", stages
    )
    yield from _router(status)
    yield from _complaints(status)
    yield from _api(status)
    restarts = CounterMetricFamily(f"{_PREFIX}_actor_restarts", "Restarts of each actor.", labels=["actor"])
    for actor in status.actors:
        restarts.add_metric([actor.name], actor.restarts)
    yield restarts


def _router(status: Status) -> Iterator[Metric]:
    sessions = [session for session in status.sessions if session.state != _LISTENING]
    total = {role: sum(session.role == role for session in sessions) for role in _ROLES}
    up = {role: sum(session.role == role and session.up for session in sessions) for role in _ROLES}
    yield _each("bgp_sessions", "BGP sessions that should be up.", "role", total)
    yield _each("bgp_sessions_up", "BGP sessions that are up.", "role", up)
    vnis = {kind: sum(vni.type == kind for vni in status.vnis) for kind in _TYPES}
    working = {kind: sum(vni.type == kind and vni.ok for vni in status.vnis) for kind in _TYPES}
    yield _each("vnis", "VNIs that should work.", "type", vnis)
    yield _each("vnis_ok", "VNIs that work.", "type", working)
    links = status.underlay.interfaces if status.underlay else ()
    yield _each(
        "interface_up", "Whether a link to the fabric is up.", "interface", {link.name: link.up for link in links}
    )
    yield _each("frr_daemon_up", "Whether a daemon of FRR runs.", "daemon", status.daemons)


def _complaints(status: Status) -> Iterator[Metric]:
    found = [problem.severity for problem in status.problems]
    problems = {severity.value: found.count(severity.value) for severity in Severity}
    yield _each("problems", "Problems of the configuration for users to mend.", "severity", problems)
    yield _one("failures", "Resources that are not in force, or not wholly, for other reasons.", len(status.failures))
    yield _one("notes", "What else is wrong: stages, FRR's daemons, actors.", len(status.notes))


def _api(status: Status) -> Iterator[Metric]:
    """Yield what is known of the API; without a snapshot it has no time."""
    api = status.api
    yield _one("api_reachable", "Whether an API server answers.", api.reach == _REACHABLE)
    yield _one("api_followed", "Whether the objects are what the server says now.", api.live)
    yield _one("api_objects", "Objects of the API that count on this node.", api.objects)
    yield _one(
        "api_not_followed", "Kinds of objects of which an answering server says nothing new.", len(api.not_followed)
    )
    if api.source != "none":
        moment = status.updated_at - api.snapshot_age_seconds
        yield _one("api_snapshot_timestamp_seconds", "Until when the API's objects are known to be true.", moment)


def _one(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, float(value))


def _each(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], float(value))
    return family
