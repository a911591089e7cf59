"""The status as metrics in Prometheus' text format, for node_exporter's textfile collector or any that reads files.

Pure: the same status gives the same text. Names and labels are an interface and keep their meaning. Everything comes
from the status, so no secret can appear; peers, tenants and objects have no series of their own, so the number of
series does not grow with the configuration.
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
_ROLES: Final = ("fabric", "host")
_TYPES: Final = ("L2", "L3")


def metrics_text(status: Status) -> str:
    """Return the whole file."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(tuple(_families(status))))
    return generate_latest(registry).decode()


class _Collected(Collector):
    """The library's interface to metrics that exist already."""

    def __init__(self, families: tuple[Metric, ...]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._families


def _families(status: Status) -> Iterator[Metric]:
    yield InfoMetricFamily(f"{_PREFIX}_build", "Version of the program.", {"version": status.version})
    yield _one("start_timestamp_seconds", "Unix time of the daemon's start.", status.started_at)
    yield _one("status_timestamp_seconds", "Unix time of this status.", status.updated_at)
    yield _one("ready", "Whether the newest configuration is applied and verified.", status.ready)
    phases = {phase: status.phase == phase for phase in get_args(Phase)}
    yield _each("phase", "1 for the current phase.", "phase", phases)
    reached = status.generations
    stages = {"desired": reached.desired, "frr": reached.frr, "kernel": reached.kernel, "verified": reached.verified}
    yield _each("generation", "Newest generation of the configuration that each stage has reached.", "stage", stages)
    yield from _router(status)
    yield from _faults(status)
    yield from _api(status)
    restarts = CounterMetricFamily(f"{_PREFIX}_actor_restarts", "Restarts of each actor.", labels=["actor"])
    for actor in status.actors:
        restarts.add_metric([actor.name], actor.restarts)
    yield restarts


def _router(status: Status) -> Iterator[Metric]:
    sessions = [session for session in status.sessions if not session.is_range]
    total = {role: sum(session.role == role for session in sessions) for role in _ROLES}
    up = {role: sum(session.role == role and session.up for session in sessions) for role in _ROLES}
    yield _each("bgp_sessions", "Configured BGP sessions, without listen ranges.", "role", total)
    yield _each("bgp_sessions_up", "BGP sessions in state Established.", "role", up)
    vnis = {kind: sum(vni.type == kind for vni in status.vnis) for kind in _TYPES}
    working = {kind: sum(vni.type == kind and vni.ok for vni in status.vnis) for kind in _TYPES}
    yield _each("vnis", "Configured VNIs.", "type", vnis)
    yield _each("vnis_ok", "VNIs that work in zebra and bgpd, their routes included.", "type", working)
    links = status.underlay.interfaces if status.underlay else ()
    yield _each(
        "interface_up", "Whether an underlay interface is up.", "interface", {link.name: link.up for link in links}
    )
    yield _each("frr_daemon_up", "Whether an FRR daemon is running.", "daemon", status.daemons)


def _faults(status: Status) -> Iterator[Metric]:
    found = [problem.severity for problem in status.problems]
    problems = {severity.value: found.count(severity) for severity in Severity}
    yield _each("problems", "Configuration problems that users have to fix.", "severity", problems)
    yield _one("failures", "Valid resources that are not, or only partly, in force.", len(status.failures))
    yield _one("notes", "Other faults: pipeline stages, FRR daemons, actors.", len(status.notes))


def _api(status: Status) -> Iterator[Metric]:
    """Yield the API's metrics; without a snapshot there is no timestamp."""
    api = status.api
    yield _one("api_reachable", "Whether the API server answers.", api.reach == _REACHABLE)
    yield _one("api_followed", "Whether the API's objects are current.", api.live)
    yield _one("api_objects", "Objects of the API that select this node.", api.objects)
    yield _one(
        "api_not_followed",
        "Kinds of objects that cannot be followed although the API server answers.",
        len(api.not_followed),
    )
    if api.source != "none":
        moment = status.updated_at - api.snapshot_age_seconds
        yield _one("api_snapshot_timestamp_seconds", "Unix time at which the API's objects were last current.", moment)


def _one(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, float(value))


def _each(name: str, meaning: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, labels=[label])
    for key, value in values.items():
        family.add_metric([key], float(value))
    return family
