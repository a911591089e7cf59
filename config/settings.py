"""The daemon's own settings: every path, limit and interval that an operator may want to change.

They come from one file and a ``conf.d`` directory beside it, merged in lexical order, the last one winning key by key.
No file at all means the defaults. They are read once, at start; the router's configuration is elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from config.metrics_settings import MetricsSettings
from config.models.base import camel, fields_by_key
from config.models.types import NamespacePattern
from config.problems import Origin, Problem, Reason, Severity, errors
from config.syntax.files import UnreadableFileError, list_directory
from config.syntax.model_errors import case_match, known_keys, suggestion, validate
from config.syntax.yaml_reader import Document, InvalidYamlError, read_yaml

_RUNNING: Final = "the daemon keeps the settings with which it was started"

LogLevel = Literal["debug", "info", "warning", "error"]

#: Upstream's flag takes zap's words, among them ``warn``.
_LEVEL_WORDS: Mapping[str, str] = {"warn": "warning"}


def _level(word: Any) -> Any:
    if not isinstance(word, str):
        return word
    folded = word.lower()
    return _LEVEL_WORDS.get(folded, folded)


#: How much is logged; case does not matter and ``warn`` means ``warning``.
LogLevelWord = Annotated[LogLevel, BeforeValidator(_level)]


def _absolute(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError("must be an absolute path without '..'")
    if any(not character.isprintable() for character in str(path)):
        raise ValueError("must not contain control characters")
    return path


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
#: A word that becomes part of paths, unit names and command lines.
PlainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]


#: A bridge's name, in which * stands for any characters.
BridgePattern = Annotated[str, Field(pattern=r"^[A-Za-z*][A-Za-z0-9*_-]{0,14}$")]
Most = Annotated[int, Field(strict=True, ge=0, le=100_000)]


class MaxResources(BaseModel):
    """Most resources of each kind that count on this node, files included."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    underlays: Most = Field(default=10, description="Underlays, of which at most one is in force.")
    l3vnis: Most = Field(default=1000, description="L3VNIs.")
    l2vnis: Most = Field(default=1000, description="L2VNIs.")
    l3passthroughs: Most = Field(default=10, description="L3Passthroughs, of which at most one is in force.")
    rawfrrconfigs: Most = Field(default=100, description="RawFRRConfigs.")


class Settings(BaseModel):
    """The daemon's settings; in files the keys are camelCase (``stateDir``)."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    node_config_file: AbsolutePath = Field(
        default=Path("/etc/openperouter/node-config.yaml"),
        description="The node's index and name, and FRR's log level.",
    )
    configs_dir: AbsolutePath = Field(
        default=Path("/etc/openperouter/configs"), description="Directory of the router configuration, openpe_*.yaml."
    )
    state_dir: AbsolutePath = Field(
        default=Path("/var/lib/openperouter"),
        description="State that survives a reboot: last good files, the NIC journal.",
    )
    run_dir: AbsolutePath = Field(
        default=Path("/run/openperouter"), description="Control socket, state file and lock of the running daemon."
    )
    metrics_file: AbsolutePath | None = Field(
        default=None,
        description="Metrics in Prometheus' text format, for node_exporter's textfile collector; absent: "
        "/var/lib/prometheus/node-exporter/openperouter.prom, or metrics/openperouter.prom in runDir where "
        "node_exporter is not installed. The unit must allow the daemon to write to another directory.",
    )
    metrics: MetricsSettings = Field(
        default_factory=MetricsSettings, description="Where the metrics can be scraped, besides their file."
    )
    netns: PlainName = Field(default="perouter", description="Name of the router's network namespace.")
    frr_pathspace: PlainName = Field(default="perouter", description="FRR's instance name (its -N option).")
    frr_etc_dir: AbsolutePath = Field(
        default=Path("/etc/frr"),
        description="FRR's configuration directory; the router's files are in its subdirectory frrPathspace.",
    )
    frr_run_dir: AbsolutePath = Field(
        default=Path("/run/frr"),
        description="FRR's runtime directory; the sockets are in its subdirectory frrPathspace.",
    )
    vtysh: AbsolutePath = Field(default=Path("/usr/bin/vtysh"), description="FRR's shell.")
    runtime: Literal["native", "podman"] = Field(
        default="native",
        description="Where FRR runs. native: the distribution's, as frr@frrPathspace.service. podman: in a pod that "
        "systemd starts from the units of 'openperouter generate quadlet'; the pod's reloader then runs vtysh.",
    )
    pod_run_dir: AbsolutePath = Field(
        default=Path("/run/openperouter-router"),
        description="With runtime podman: directory that host and pod share, with the reloader's socket, the PID file "
        "of FRR's container and the lock for FRR's configuration.",
    )
    cni_plugin_dir: AbsolutePath = Field(
        default=Path("/usr/lib/cni"),
        description="Directory of the CNI plugins that make underlay interfaces of type CNIDevice; they run as root.",
    )
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = Field(
        default="openperouter-system", description="Kubernetes namespace to which resources from files belong."
    )
    kubeconfig: AbsolutePath | None = Field(
        default=None,
        description="Credentials for the API server (a kubeconfig); absent: kubeconfig in credentialsDir.",
    )
    credentials_dir: AbsolutePath = Field(
        default=Path("/var/lib/hostbridge"),
        description="Directory that a credentials proxy in the cluster fills: kubeconfig, token, ca.crt.",
    )
    kubeconfig_programs: bool = Field(
        default=False,
        strict=True,
        description="Whether the kubeconfig may name a program that gives the credentials (exec, auth-provider). It "
        "runs as root, so no one but root may be able to write the kubeconfig and the program.",
    )
    kubeconfig_without_authority: bool = Field(
        default=False,
        strict=True,
        description="Whether the kubeconfig may name no certificate authority: every authority that the system trusts "
        "can then vouch for the server.",
    )
    underlay_namespaces: tuple[NamespacePattern, ...] = Field(
        default=(),
        description="Further namespaces whose Underlays and L3Passthroughs count, besides the program's own; *: all. "
        "They decide which NICs the router takes and with whom it exchanges the underlay's routes.",
    )
    external_bridges: tuple[BridgePattern, ...] = Field(
        default=(),
        description="Bridges of the host to which L2VNIs of other namespaces than the program's own may be attached "
        "(lifecycle External); * stands for any characters. L2VNIs of files and of the program's own may use any.",
    )
    max_resources: MaxResources = Field(
        default_factory=MaxResources,
        description="Most resources of each kind that count. Files and what is in force come first; the others are "
        "reported and ignored.",
    )
    allow_duplicate_index: bool = Field(
        default=False,
        strict=True,
        description="Whether the router may get a router ID or tunnel endpoint that another node of the cluster has. "
        "false: a router that is not up waits and reports it, one that is up stays up and reports it.",
    )
    auto_apply: bool = Field(
        default=True,
        strict=True,
        description="Whether changed files take effect by themselves. false: at the next reload (openperouter reload, "
        "systemctl reload openperouter); until then the status names them. A restart does not apply changed router "
        "files either; it does read the node configuration and password files.",
    )
    bgp_listen_limit: int = Field(
        default=65535,
        strict=True,
        ge=1,
        le=65535,
        description="Maximum number of dynamic BGP neighbours (FRR's bgp listen limit).",
    )
    raw_snippets_from_api: bool = Field(
        default=True,
        alias="rawSnippetsFromAPI",
        strict=True,
        description="Whether RawFRRConfig objects of the API are accepted. A snippet decides where the node's "
        "traffic goes; false limits them to files.",
    )
    log_level: LogLevelWord = Field(default="info", description="The daemon's log level.")
    audit_interval_seconds: float = Field(
        default=60.0,
        ge=1,
        le=86400,
        allow_inf_nan=False,
        description="How often the kernel and FRR are checked for drift.",
    )
    silent_host_seconds: float = Field(
        default=30.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="After how many seconds of silence a host of a stretched segment (L2VNI) is asked, by ARP or "
        "neighbour discovery, whether it is still there, so that the fabric does not forget it. Twice in this time "
        "hosts that FRR has missed are looked for, too. 0: never.",
    )
    silent_host_probes: int = Field(
        default=500,
        strict=True,
        ge=1,
        le=10000,
        description="The most hosts that are asked per second, on all segments together.",
    )
    settle_seconds: float = Field(
        default=0.5,
        ge=0,
        le=30,
        allow_inf_nan=False,
        description="How long files must be unchanged before they are read.",
    )


def load_settings(main: Path, conf_d: Path) -> tuple[Settings, tuple[Problem, ...]]:
    """Read ``main`` and then ``conf_d/*.yaml`` in lexical order, later keys winning.

    Nothing is raised. When a problem is an error the settings returned are those of the files and keys that are good:
    enough to log the problem, not to run with.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for path in [main, *_fragments(conf_d, problems)]:
        document = _read(path, problems)
        if document is not None:
            values |= _accepted(document, problems)
    return Settings.model_validate(values), tuple(problems)


def restart_problems(main: Path, running: Settings) -> tuple[Problem, ...]:
    """Return a warning that names the settings that need a restart, or the errors that would prevent one.

    ``main`` has its ``conf.d`` beside it. Settings are read at start only, so a reload reports what it does not apply.
    """
    now, problems = load_settings(main, main.parent / "conf.d")
    if errors(problems):
        in_force = f"{_RUNNING}; it cannot start with these"
        return tuple(replace(problem, in_force=in_force) for problem in errors(problems))
    keys = [
        key
        for key, name in zip(fields_by_key(Settings), Settings.model_fields, strict=True)
        if getattr(running, name) != getattr(now, name)
    ]
    if not keys:
        return ()
    message = f"restart needed for: {', '.join(keys)}"
    place = Origin(path=str(main))
    return (Problem(message, place, severity=Severity.WARNING, reason=Reason.FILE_INVALID, in_force=_RUNNING),)


def _fragments(conf_d: Path, problems: list[Problem]) -> list[Path]:
    try:
        return [conf_d / name for name in list_directory(conf_d) if name.endswith(".yaml") and not name.startswith(".")]
    except UnreadableFileError as error:
        problems.append(error.problem())
        return []


def _read(path: Path, problems: list[Problem]) -> Document | None:
    try:
        return read_yaml(path)
    except FileNotFoundError:
        return None
    except InvalidYamlError as error:
        problems += error.problems
    return None


def _accepted(document: Document, problems: list[Problem]) -> dict[str, Any]:
    """Return one file's keys that are known and whose values are valid."""
    data = document.data()
    if data is None:
        return {}
    if not isinstance(data, dict):
        message = "must be a mapping (key: value)"
        problems.append(Problem(message, document.origin(), reason=Reason.FILE_INVALID))
        return {}
    known = known_keys(Settings)
    unknown = [key for key in data if case_match(key, known) is None]
    for key in unknown:
        message = f"unknown key; {suggestion(key, known)}"
        problems.append(Problem(message, document.key_origin((key,)), key, reason=Reason.FILE_INVALID))
    given = {key: value for key, value in data.items() if value is not None and key not in unknown}
    _, found = validate(Settings, given, document, reason=Reason.FILE_INVALID)
    problems += found
    # A value is refused as a whole: of "metrics.listen" or "externalBridges[0]" the key counts.
    refused = {re.split(r"[.\[]", problem.field)[0] for problem in errors(found)}
    return {key: value for key, value in given.items() if key not in refused}
