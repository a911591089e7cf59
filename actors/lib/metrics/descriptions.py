"""Every metric: its name, kind, labels, meaning, and the most series that it can have.

The text for Prometheus is made from these entries alone, so what is not listed is not exported; ``docs/metrics.md`` is
generated from them, and the alert rules and the dashboard are checked against them. Names and labels are an
interface. A label's values are from a closed set, or the names of what is configured and of FRR's peers: those are
bounded by ``most``, and how many were left out is a metric of its own. No label has an address of a user, a message,
or anything else that grows without end, and nothing here could carry a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "openperouter"
#: Most BGP sessions that have series of their own: configured ones come first, those of listen ranges after them.
MOST_SESSIONS: Final = 1000
#: Address families of a session that FRR can count: IPv4, IPv6 and EVPN, and one to spare.
FAMILIES: Final = 4
#: Most VNIs with series of their own: as many as count by default (setting maxResources).
MOST_VNIS: Final = 2000
#: Types of EVPN routes that a VNI can have: an L2VNI's.
ROUTE_TYPES: Final = 2
#: Most addresses that are pinged with series of their own.
MOST_PROBES: Final = 1000
#: Most failing resources with a series of their own.
MOST_FAILED: Final = 200
#: For sets that the program itself closes, such as its actors: more than it has now.
FEW: Final = 100

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True)
class Description:
    """One metric. ``most`` counts its sets of label values; a histogram has one series per bucket for each."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    most: int = 1

    @property
    def starts_at_zero(self) -> bool:
        """Return whether there is one series from the start."""
        return self.kind == "counter" and not self.labels

    @property
    def full_name(self) -> str:
        """Return the name with the program's prefix, as rules and dashboards have it."""
        return f"{PREFIX}_{self.name}"


def _gauge(name: str, meaning: str, *labels: str, most: int = 1) -> Description:
    return Description(name, "gauge", meaning, labels, most)


def _counter(name: str, meaning: str, *labels: str, most: int = 1) -> Description:
    return Description(name, "counter", meaning, labels, most)


def _histogram(name: str, meaning: str, *labels: str, most: int) -> Description:
    return Description(name, "histogram", meaning, labels, most)


PROCESS: Final = (
    _gauge("build_info", "1, with the version of the program as a label.", "version"),
    _gauge("start_timestamp_seconds", "Unix time of the daemon's start."),
    _gauge("status_timestamp_seconds", "Unix time of this status: an old one is that of a daemon that is not running."),
    _gauge("ready", "Whether the newest configuration is applied and verified."),
    _gauge("phase", "1 for the current phase.", "phase", most=5),
    _gauge("actor_up", "Whether an actor runs.", "actor", most=FEW),
    _counter(
        "actor_restarts_total",
        "Restarts of an actor after a failed run, by cause: fault, bug, returned, frozen, start_timeout.",
        "actor",
        "cause",
        most=6 * FEW,
    ),
    _gauge("actor_progress_age_seconds", "Seconds since an actor's last unit of work.", "actor", most=FEW),
    _gauge(
        "series_omitted", "Sets of labels of a metric that are left out because there are too many.", "metric", most=FEW
    ),
)

CONFIGURATION: Final = (
    _gauge("desired_generation", "Generation of the configuration that is desired."),
    _gauge("applied_generation", "Newest generation that is applied and verified in FRR and the kernel."),
    _gauge("generation", "Newest generation that each stage has reached.", "stage", most=4),
    _gauge(
        "last_apply_timestamp_seconds",
        "Unix time at which FRR or the kernel was last seen to be as desired; each audit moves it.",
        "phase",
        most=2,
    ),
    _histogram(
        "reconcile_duration_seconds", "Duration of passes over FRR or the kernel, with audits.", "phase", most=2
    ),
    _counter("drift_detected_total", "Passes that found a change which the daemon had not made.", "phase", most=2),
    _counter("drift_repairs_total", "Passes that repaired a change which the daemon had not made.", "phase", most=2),
    _gauge(
        "trial_deadline_timestamp_seconds", "Unix time at which the trial in force is reverted; absent without one."
    ),
    _gauge("problems", "Configuration problems that users have to fix.", "severity", most=2),
    _gauge("failed_resources", "Valid resources that are not, or only partly, in force."),
    _gauge(
        "resource_failed",
        "1 for each valid resource that is not, or only partly, in force.",
        "kind",
        "namespace",
        "name",
        "reason",
        most=MOST_FAILED,
    ),
    _gauge("other_faults", "Faults that belong to no single resource: of pipeline stages, FRR daemons, actors."),
)

FRR: Final = (
    _gauge("frr_info", "1, with FRR's version as a label; absent until FRR was reached.", "version"),
    _gauge("frr_daemon_up", "Whether an FRR daemon runs and answers.", "daemon", most=FEW),
    _histogram(
        "frr_reload_duration_seconds",
        "Duration of passes that changed FRR's configuration (applied) or could not (failed).",
        "result",
        most=2,
    ),
    _counter("frr_reload_failures_total", "Passes after which FRR did not run the desired configuration."),
    _counter("frr_writes_total", "Batches of commands sent to FRR: accepted, or refused in part.", "result", most=2),
)

KERNEL: Final = (
    _counter(
        "netlink_ops_total", "Changes of the kernel (netlink, sysctl, nftables): ok, refused.", "op", "result", most=FEW
    ),
    _counter("netlink_overruns_total", "Times that the kernel dropped notifications; each leads to a pass."),
    _gauge("interface_up", "Whether an underlay interface is up.", "interface", most=FEW),
)

SESSIONS: Final = (
    _gauge("bgp_sessions", "Configured BGP sessions, without listen ranges.", "role", most=2),
    _gauge("bgp_sessions_up", "BGP sessions in state Established.", "role", most=2),
    _gauge("bgp_session_up", "Whether a BGP session is Established.", "peer", "vrf", "role", most=MOST_SESSIONS),
    _gauge(
        "bgp_session_uptime_seconds",
        "How long a BGP session has been Established; 0 while it is not.",
        "peer",
        "vrf",
        most=MOST_SESSIONS,
    ),
    _counter(
        "bgp_session_flaps_total",
        "How often a BGP session was lost since bgpd's start.",
        "peer",
        "vrf",
        most=MOST_SESSIONS,
    ),
    _gauge(
        "bgp_session_prefixes_received",
        "Prefixes received in an address family: ipv4Unicast, ipv6Unicast, l2VpnEvpn.",
        "peer",
        "vrf",
        "afi",
        most=FAMILIES * MOST_SESSIONS,
    ),
    _gauge("bfd_session_up", "Whether the BFD session of a BGP session is up.", "peer", "vrf", most=MOST_SESSIONS),
)

PROBES: Final = (
    _gauge("probe_up", "Whether an address that a session's probe pings answers; absent until that is known.",
           "target", "vrf", "role", most=MOST_PROBES),
    _gauge("probe_rtt_seconds", "Round-trip time of a probe's last answer.", "target", "vrf", most=MOST_PROBES),
    _counter("probe_sent_total", "Pings sent by a probe.", "target", "vrf", most=MOST_PROBES),
    _counter("probe_lost_total", "Pings without an answer within a second.", "target", "vrf", most=MOST_PROBES),
)  # fmt: skip

VNIS: Final = (
    _gauge("vnis", "Configured VNIs.", "type", most=2),
    _gauge("vnis_ok", "VNIs that work in zebra and bgpd, their routes included.", "type", most=2),
    _gauge("vni_ok", "Whether a VNI works.", "vni", "type", "vrf", most=MOST_VNIS),
    _gauge("vni_remote_vteps", "Tunnel endpoints of other nodes in a VNI.", "vni", "type", "vrf", most=MOST_VNIS),
    _gauge("vni_routes", "BGP routes of an L3VNI's VRF in the forwarding table.", "vni", "type", "vrf", most=MOST_VNIS),
    _gauge(
        "vni_evpn_routes_received",
        "EVPN routes of an L2VNI (types 2, 3) or L3VNI (5) from other tunnel endpoints; absent while unknown.",
        "vni",
        "type",
        "vrf",
        "route_type",
        most=ROUTE_TYPES * MOST_VNIS,
    ),
    _gauge(
        "vni_evpn_routes_advertised",
        "EVPN routes of an L2VNI (types 2, 3) or L3VNI (5) that this node originates; absent while unknown.",
        "vni",
        "type",
        "vrf",
        "route_type",
        most=ROUTE_TYPES * MOST_VNIS,
    ),
)

API: Final = (
    _gauge("api_reachable", "Whether the API server answers."),
    _gauge("api_followed", "Whether the API's objects are current."),
    _gauge("api_objects", "Objects of the API that select this node."),
    _gauge("api_not_followed", "Kinds of objects that cannot be watched although the API server answers."),
    _gauge(
        "api_snapshot_timestamp_seconds", "Unix time at which the API's objects were last current; absent without any."
    ),
    _gauge(
        "api_credentials_expiry_timestamp_seconds",
        "Unix time at which the token or certificate for the API server expires; absent if none is stated.",
    ),
    _counter("api_write_errors_total", "Writes that the API server did not carry out.", "verb", "reason", most=FEW),
    _counter(
        "watch_restarts_total", "Watches and lists of the API that were restarted after an error.", "reason",
        most=FEW,
    ),
)  # fmt: skip

#: The sections of the reference, with their titles.
SECTIONS: Final[Mapping[str, tuple[Description, ...]]] = {
    "The daemon": PROCESS,
    "Configuration": CONFIGURATION,
    "FRR": FRR,
    "The kernel": KERNEL,
    "BGP and BFD sessions": SESSIONS,
    "Probes": PROBES,
    "VNIs": VNIS,
    "The API server": API,
}
DESCRIPTIONS: Final[Mapping[str, Description]] = {one.name: one for section in SECTIONS.values() for one in section}
