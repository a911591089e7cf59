"""The node's identity: ``node-config.yaml``, and how an index is derived from an address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from config.desired import IPInterface, RouterIdScheme
from config.models.base import Model
from config.models.names import NeighborInterface
from config.models.types import Cidr, parse_cidr
from config.outcomes import NodeIdentity
from config.problems import Origin, Problem, Reason, Severity, errors
from config.settings import LogLevelWord
from config.syntax.model_errors import validate
from config.syntax.yaml_reader import InvalidYamlError, read_yaml

_NODE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
#: Upstream truncates host parts to this; a pool that size does not exist, so IPAM refuses the index in time.
_HOST_PART_BITS: Final = 64
#: What a node without a history gets.
NEW_SCHEME: Final[RouterIdScheme] = "v2"
#: The longest name of a Kubernetes object (RFC 1123 subdomain).
_MAX_NODE_NAME: Final = 253


class IndexUnknownError(ValueError):
    """The node's index cannot be derived from the addresses that the interface has now."""


def _check_node_name(name: str) -> str:
    if len(name) > _MAX_NODE_NAME or not _NODE_NAME.fullmatch(name):
        raise ValueError("must be a host name: letters, digits, '.', '_' and '-'")
    return name


class NodeIndex(Model):
    """The source of the node's index."""

    index: int | None = Field(
        default=None,
        strict=True,
        ge=0,
        le=2**63 - 1,
        description="The index, unique among nodes. Mutually exclusive with interfaceName.",
    )
    interface_name: NeighborInterface | None = Field(
        default=None, description="Host interface whose address gives the index: the host part of the address."
    )
    cidr: Cidr | None = Field(
        default=None, description="Network that contains the address to use; absent: the first IPv4 address."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_bare_number(cls, data: Any) -> Any:
        if isinstance(data, int | str | list):
            index = f": write nodeIndex: {{index: {data}}}" if type(data) is int and data >= 0 else ", such as index: 3"
            raise ValueError(f"must be a mapping{index}")  # noqa: TRY004 - pydantic's way
        return data

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.index is not None and self.interface_name is not None:
            raise ValueError("set at most one of index and interfaceName")
        if self.cidr is not None and self.interface_name is None:
            raise ValueError("cidr needs interfaceName")
        return self


class NodeConfig(Model):
    """The content of ``node-config.yaml``."""

    node_index: NodeIndex = Field(
        default_factory=NodeIndex, description="Selects the node's addresses from every pool."
    )
    node_name: Annotated[str, AfterValidator(_check_node_name)] | None = Field(
        default=None, description="The node's name in Kubernetes; absent: the host name."
    )
    router_id_scheme: RouterIdScheme | None = Field(
        default=None,
        alias="routerIDScheme",
        description="How the router ID follows from routerIDCIDR: v2: host number index; v1, as upstream had it up to "
        "0.2: host number index+1. All nodes of a fabric need the same, or two have one router ID. Absent: what the "
        "node had before, v2 for a new node. A change resets all sessions of the node.",
    )
    log_level: LogLevelWord | None = Field(default=None, description="FRR's log level; absent: that of the daemon.")
    _index_origin: str = PrivateAttr(default="")

    @property
    def needs_interface(self) -> str | None:
        """Return the interface whose addresses :meth:`identify` needs, or None."""
        return self.node_index.interface_name

    def identify(
        self,
        hostname: str,
        addresses: Sequence[IPInterface] = (),
        log_level: str = "info",
        scheme: RouterIdScheme = NEW_SCHEME,
    ) -> NodeIdentity:
        """Return the node's identity; ``scheme`` counts where none is written.

        Raises :class:`IndexUnknownError` when no address gives an index.
        """
        if self.needs_interface is not None:
            try:
                index = derive_index(addresses, self.node_index.cidr)
            except IndexUnknownError as error:
                raise IndexUnknownError(f"interface {self.needs_interface}: {error}") from None
        else:
            index = self.node_index.index or 0
        name, level = self.node_name or hostname, self.log_level or log_level
        return NodeIdentity(name, index, level, self.router_id_scheme or scheme, self._index_origin)


def derive_index(addresses: Sequence[IPInterface], cidr: str | None = None) -> int:
    """Return the host part of the address that stands for the node.

    With ``cidr`` it is the first address inside that network, of either family; else the first IPv4 address; else the
    first global unicast IPv6 address. The prefix length is the interface's own. Raises :class:`IndexUnknownError`.
    """
    if not addresses:
        raise IndexUnknownError("has no address")
    if cidr is not None:
        network = parse_cidr(cidr).network
        chosen = next((one for one in addresses if one.version == network.version and one.ip in network), None)
        if chosen is None:
            raise IndexUnknownError(f"has no address in {network}")
    else:
        candidates: list[IPInterface] = [one for one in addresses if one.version == 4]
        candidates += [one for one in addresses if _is_global_unicast(one)]
        chosen = next(iter(candidates), None)
        if chosen is None:
            raise IndexUnknownError("has neither an IPv4 nor a global IPv6 address")
    host_part = int(chosen.ip) & int(chosen.network.hostmask)
    return host_part & ((1 << _HOST_PART_BITS) - 1)


def _is_global_unicast(address: IPInterface) -> bool:
    ip = address.ip
    return not (ip.is_link_local or ip.is_multicast or ip.is_loopback or ip.is_unspecified)


def load_node_config(path: Path) -> tuple[NodeConfig | None, tuple[Problem, ...]]:
    """Read the node's configuration; None comes with at least one error. Nothing is raised."""
    try:
        document = read_yaml(path)
    except FileNotFoundError:
        message = "does not exist; it needs at least 'nodeIndex: {index: <number>}'"
        return None, (Problem(message=message, origin=Origin(path=str(path)), reason=Reason.FILE_INVALID),)
    except InvalidYamlError as error:
        return None, error.problems
    data = document.data()
    config, problems = validate(NodeConfig, {} if data is None else data, document, reason=Reason.FILE_INVALID)
    if config is not None:
        source = "interfaceName" if config.needs_interface else "index"
        config._index_origin = str(document.origin(("nodeIndex", source)))
        if not errors(problems) and config.node_index == NodeIndex():
            problems = (*problems, _implicit_index(document.origin(("nodeIndex",))))
    return config, problems


def _implicit_index(origin: Origin) -> Problem:
    return Problem(
        message="not set, so it is 0; two nodes with the same index get the same addresses",
        origin=origin,
        field="nodeIndex.index",
        severity=Severity.WARNING,
        reason=Reason.FILE_INVALID,
    )
