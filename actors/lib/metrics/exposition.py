"""The status and what the actors counted, as metrics in Prometheus' text format, version 0.0.4.

    Status ─────┐
    counters ───┴─> Samples (names, labels and limits of descriptions.py) ─> text

The same status and counters give the same text. What exceeds a metric's limit is left out, and counted. Prometheus' own
library is not used: it brings a web server and a client, which took a fourteenth of all imports of a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, get_args

from config.outcomes import PROBE_UNKNOWN, PROBE_UP, ProbeHealth, SessionHealth
from config.problems import Severity
from config.status import Phase, Status

from .counters import BUCKETS, COUNTERS, HISTOGRAMS, Distribution
from .descriptions import DESCRIPTIONS, Description

#: What the text is, for HTTP.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_REACHABLE: Final = "reachable"
_RUNNING: Final = "running"
_ROLES: Final = ("fabric", "host")
_TYPES: Final = ("L2", "L3")
#: The longest name that Kubernetes has.
_LABEL_LENGTH: Final = 253

Value = float | Distribution


def metrics_text(status: Status) -> str:
    """Return the whole text."""
    samples = Samples()
    _process(samples, status)
    _configuration(samples, status)
    _frr_and_kernel(samples, status)
    _sessions(samples, status.sessions)
    _probes(samples, status.probes)
    _vnis(samples, status)
    _api(samples, status)
    for measured in COUNTERS:
        for labels, value in measured.values().items():
            samples.set(measured.description.name, value, *labels)
    for histogram in HISTOGRAMS:
        for labels, found in histogram.values().items():
            samples.set(histogram.description.name, found, *labels)
    return "".join(samples.lines())


class Samples:
    """The values of all metrics, each set of labels once."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], Value]] = {name: {} for name in DESCRIPTIONS}
        self._omitted: dict[str, int] = {}

    def set(self, name: str, value: Value, *labels: str) -> None:
        """Set one value; beyond the metric's limit it is only counted."""
        description, values = DESCRIPTIONS[name], self._values[name]
        key = tuple(map(_printable, labels))
        if len(key) != len(description.labels):
            raise ValueError(f"{name} has the labels {description.labels}")
        if key not in values and len(values) >= description.most:
            self._omitted[name] = self._omitted.get(name, 0) + 1
        else:
            values[key] = value

    def lines(self) -> Iterator[str]:
        """Yield the text of the metrics in the order of the reference, those without any value left out."""
        for name, number in self._omitted.items():
            self._values["series_omitted"][DESCRIPTIONS[name].full_name,] = number
        for name, values in self._values.items():
            if values:
                yield from _family(DESCRIPTIONS[name], values)


def _family(description: Description, values: dict[tuple[str, ...], Value]) -> Iterator[str]:
    name, meaning = description.full_name, _escaped(description.meaning)
    yield f"# HELP {name} {meaning}\n# TYPE {name} {description.kind}\n"
    form = ",".join(f'{label}="{{}}"' for label in description.labels)
    for key, value in values.items():
        labels = form.format(*map(_quoted, key))
        if isinstance(value, Distribution):
            counts = list(accumulate(value.counts))
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                of_bucket = f'le="{bound}"'
                yield _sample(f"{name}_bucket", f"{labels},{of_bucket}" if labels else of_bucket, count)
            yield _sample(f"{name}_count", labels, counts[-1])
            yield _sample(f"{name}_sum", labels, value.total)
        else:
            yield _sample(name, labels, value)


def _sample(name: str, labels: str, value: float) -> str:
    return f"{name}{{{labels}}} {float(value)}\n" if labels else f"{name} {float(value)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(label: str) -> str:
    return _escaped(label).replace('"', r"\"")


def _printable(label: str) -> str:
    """Return a label that can be encoded: a name from a file need not be UTF-8."""
    if label.isascii() and len(label) <= _LABEL_LENGTH:
        return label
    return label[:_LABEL_LENGTH].encode("utf-8", "replace").decode("utf-8")


def _process(samples: Samples, status: Status) -> None:
    samples.set("build_info", 1, status.version)
    samples.set("start_timestamp_seconds", status.started_at)
    samples.set("status_timestamp_seconds", status.updated_at)
    samples.set("ready", status.ready)
    for phase in get_args(Phase):
        samples.set("phase", status.phase == phase, phase)
    for actor in status.actors:
        samples.set("actor_up", actor.state == _RUNNING, actor.name)
        samples.set("actor_progress_age_seconds", actor.progress_age_seconds, actor.name)
        for cause, number in (actor.causes or {"fault": 0}).items():
            samples.set("actor_restarts_total", number, actor.name, cause)


def _configuration(samples: Samples, status: Status) -> None:
    reached = status.generations
    samples.set("desired_generation", reached.desired)
    samples.set("applied_generation", reached.verified)
    stages = {"desired": reached.desired, "frr": reached.frr, "kernel": reached.kernel, "verified": reached.verified}
    for stage, generation in stages.items():
        samples.set("generation", generation, stage)
    ends_at = _fact(status, "static_config", "trial_ends_at")
    if isinstance(ends_at, int | float):
        samples.set("trial_deadline_timestamp_seconds", ends_at)
    found = [problem.severity for problem in status.problems]
    for severity in Severity:
        samples.set("problems", found.count(severity), severity.value)
    samples.set("failed_resources", len(status.failures))
    for failure in status.failures:
        resource = failure.resource
        name = (resource.namespace, resource.name) if not resource.label else ("", resource.label)
        samples.set("resource_failed", 1, resource.kind.value, *name, failure.reason.value)
    samples.set("other_faults", len(status.notes))


def _fact(status: Status, actor: str, name: str) -> object:
    return next((child.facts.get(name) for child in status.actors if child.name == actor), None)


def _frr_and_kernel(samples: Samples, status: Status) -> None:
    version = _fact(status, "frr", "frr_version")
    if version:
        samples.set("frr_info", 1, str(version))
    for daemon, up in status.daemons.items():
        samples.set("frr_daemon_up", up, daemon)
    for link in status.underlay.interfaces if status.underlay else ():
        samples.set("interface_up", link.up, link.name)


def _sessions(samples: Samples, sessions: Sequence[SessionHealth]) -> None:
    sessions = [session for session in sessions if not session.is_range]
    for role in _ROLES:
        samples.set("bgp_sessions", sum(session.role == role for session in sessions), role)
        samples.set("bgp_sessions_up", sum(session.role == role and session.up for session in sessions), role)
    for session in sessions:
        of = (session.peer, session.vrf)
        samples.set("bgp_session_up", session.up, *of, session.role)
        samples.set("bgp_session_uptime_seconds", session.uptime_seconds, *of)
        samples.set("bgp_session_flaps_total", session.flaps, *of)
        for family, number in session.prefixes_received.items():
            samples.set("bgp_session_prefixes_received", number, *of, family)
        if session.bfd:
            samples.set("bfd_session_up", session.bfd == "up", *of)


def _probes(samples: Samples, probes: Sequence[ProbeHealth]) -> None:
    for probe in probes:
        of = (probe.target, probe.vrf)
        if probe.state != PROBE_UNKNOWN:
            samples.set("probe_up", probe.state == PROBE_UP, *of, probe.role)
        if probe.state == PROBE_UP:
            samples.set("probe_rtt_seconds", probe.rtt_seconds, *of)
        samples.set("probe_sent_total", probe.sent, *of)
        samples.set("probe_lost_total", probe.lost, *of)


def _vnis(samples: Samples, status: Status) -> None:
    for kind in _TYPES:
        samples.set("vnis", sum(vni.type == kind for vni in status.vnis), kind)
        samples.set("vnis_ok", sum(vni.type == kind and vni.ok for vni in status.vnis), kind)
    for vni in status.vnis:
        of = (str(vni.vni), vni.type, vni.vrf)
        samples.set("vni_ok", vni.ok, *of)
        samples.set("vni_remote_vteps", vni.remote_vteps, *of)
        if vni.type == "L3":
            samples.set("vni_routes", vni.routes, *of)
        for kind, number in vni.evpn_received.items():
            samples.set("vni_evpn_routes_received", number, *of, kind)
        for kind, number in vni.evpn_advertised.items():
            samples.set("vni_evpn_routes_advertised", number, *of, kind)


def _api(samples: Samples, status: Status) -> None:
    """Set the API's metrics; without a snapshot there is no timestamp."""
    api = status.api
    samples.set("api_reachable", api.reach == _REACHABLE)
    samples.set("api_followed", api.live)
    samples.set("api_objects", api.objects)
    samples.set("api_not_followed", len(api.not_followed))
    if api.source != "none":
        samples.set("api_snapshot_timestamp_seconds", status.updated_at - api.snapshot_age_seconds)
    if api.expires_at:
        samples.set("api_credentials_expiry_timestamp_seconds", api.expires_at)
