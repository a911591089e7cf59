"""What the probes found out, as plain values: everything that the checks know of the machine.

A part that could not be looked at is None and has a :class:`Gap` that says why; checks of it then say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.netlink.planning.observed import NamespaceView, NicRecord
from config.desired import DesiredState
from config.problems import Problem
from config.settings import Settings
from config.status import Status


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of the machine that could not be looked at."""

    area: str
    reason: str


@dataclass(frozen=True, slots=True)
class FileFact:
    """One file or directory. ``mode`` has the permission bits only; owners are names, or numbers without one.

    ``sheltered`` says whether a directory above keeps others out, whatever the file's own mode.
    """

    path: str
    mode: int
    owner: str = "root"
    group: str = "root"
    directory: bool = False
    sheltered: bool = False


@dataclass(frozen=True, slots=True)
class UnitFact:
    """A systemd unit in systemd's words. ``started`` is when it became active, in Unix seconds, 0 when it is not."""

    name: str
    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    enabled: str = ""
    result: str = "success"
    exit_status: int = 0
    restarts: int = 0
    started: float = 0.0
    drop_ins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FrrFacts:
    """FRR as it is installed and as it runs.

    ``version`` is empty without FRR; ``daemons_file`` None without that file, else its assignments; ``running`` None
    when FRR does not answer; ``inside`` says whether zebra is in the router's namespace, None when there is no zebra;
    ``outdated`` are the daemons whose program was replaced since they started.
    """

    version: str = ""
    vtysh: bool = False
    reload: bool = False
    daemons_file: Mapping[str, str] | None = None
    running: frozenset[str] | None = None
    silence: str = ""
    conf: FileFact | None = None
    inside: bool | None = None
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """The links of both namespaces. ``router`` None: ``router_problem`` says why; ``sysctls`` are the router's.

    ``rp_filter`` has the host's setting for ``all`` and for each of our devices there.
    """

    host: NamespaceView = field(default_factory=NamespaceView)
    router: NamespaceView | None = None
    router_problem: str = ""
    sysctls: Mapping[str, str | None] = field(default_factory=dict)
    rp_filter: Mapping[str, str] = field(default_factory=dict)
    journal: Mapping[str, NicRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ManagersFacts:
    """What other programs that configure networks are told of our devices.

    ``networkd`` has the keys of networkd's [Network] section; ``networkd_changed`` is when a file of it last changed,
    Unix seconds; ``unmanaged`` whether a ``.network`` file keeps networkd off our devices; ``network_manager`` whether
    NetworkManager is told so; ``link`` whether udev leaves their hardware addresses alone, ``rules`` whether it keeps
    the name of a NIC that comes back.
    """

    networkd: Mapping[str, str] = field(default_factory=dict)
    networkd_changed: float = 0.0
    unmanaged: bool = False
    network_manager: bool = False
    link: bool = False
    rules: bool = False


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """``now`` in Unix seconds; ``synchronised`` None when the kernel does not say."""

    now: float
    synchronised: bool | None


@dataclass(frozen=True, slots=True)
class DiskFact:
    """What is left on the file system of a directory, for root."""

    path: str
    free_bytes: int
    free_inodes: int


@dataclass(frozen=True, slots=True)
class ConfigurationFacts:
    """What the files say now, without what is remembered of earlier ones."""

    resources: int
    problems: tuple[Problem, ...] = ()
    desired: DesiredState | None = None
    node_known: bool = True


@dataclass(frozen=True, slots=True)
class CredentialsFacts:
    """The credentials for the API server, as far as they can be looked at without using them.

    ``there`` says whether there is a kubeconfig at ``path``; ``problem`` why it is of no use; ``private`` are the files
    with a secret in them and ``directories`` all those above them; ``program`` gives credentials when the daemon asks
    it; ``ends`` is when they end, in Unix seconds.
    """

    path: str
    there: bool = False
    problem: str = ""
    server: str = ""
    program: str = ""
    ends: float | None = None
    private: tuple[FileFact, ...] = ()
    directories: tuple[FileFact, ...] = ()


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """``holder`` is the process that holds the lock, 0 for none.

    ``status`` is its answer or, with ``silent`` saying why there is none, its last words.
    """

    holder: int = 0
    silent: str = ""
    status: Status | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything. ``kinds`` says of each kind of device whether this kernel can make it."""

    settings: Settings
    kinds: Mapping[str, bool] | None = None
    units: Mapping[str, UnitFact] | None = None
    frr: FrrFacts | None = None
    network: NetworkFacts | None = None
    managers: ManagersFacts | None = None
    files: tuple[FileFact, ...] | None = None
    clock: ClockFacts | None = None
    disks: tuple[DiskFact, ...] | None = None
    configuration: ConfigurationFacts | None = None
    credentials: CredentialsFacts | None = None
    daemon: DaemonFacts | None = None
    gaps: tuple[Gap, ...] = ()

    def unit(self, name: str) -> UnitFact | None:
        """Return a unit's fact, None when systemd could not be asked."""
        return None if self.units is None else self.units.get(name, UnitFact(name))

    @property
    def frr_unit(self) -> str:
        """The unit of the router's FRR."""
        return f"frr@{self.settings.frr_pathspace}.service"
