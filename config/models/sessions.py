"""The BGP session between the router and the host over a veth pair."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from config.desired import Family, RemoteAS

from .base import Model
from .rules import Cel, cel, check
from .types import (
    ONE_OF_EACH_FAMILY,
    Address,
    Asn,
    Cidr,
    Ipv4Subnet,
    Ipv6Subnet,
    PrefixLimit,
    SecretKey,
    SecretName,
    SecretText,
    Subnet,
    TtlSecurityHops,
    one_of_each_family,
    parse_cidr,
)

#: Networks that a host may announce: enough for pools of services, few enough for FRR to take at once.
MAX_ALLOWED_PREFIXES = 256

#: Targets of one session's probe, besides the host's addresses.
MAX_PROBE_TARGETS = 16

#: How FRR spells the typed relation.
_WORDS = {"External": "external", "Internal": "internal"}


def remote_as(number: int | None, relation: str | None) -> RemoteAS:
    """Return FRR's ``remote-as``: the number, or the keyword for the relation."""
    return number if number is not None else _WORDS[relation or "External"]


def is_external(remote: RemoteAS, own: int) -> bool:
    """Whether a session is eBGP seen from an instance with AS ``own``."""
    return remote == "external" if isinstance(remote, str) else remote != own


#: The key of a Secret in which the password is unless the reference names another.
DEFAULT_KEY: Final = "password"
REFERENCE_HELP: Final = (
    "Where the password is: for objects of the API, a key of a Secret; for files, secrets/<name> beside the "
    "configuration, or secrets/<name>.<key> for another key than password. Files may have the name alone."
)


class SecretReference(Model):
    """The place of a password. The name alone, as text, means the same as an object without ``key``."""

    name: SecretName = Field(min_length=1, description="Name of the Secret or file.")
    key: SecretKey | None = Field(default=None, description="Key in the Secret; absent: password.")

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str | int) and not isinstance(data, bool) else data

    @property
    def in_secret(self) -> tuple[str, str]:
        """Return the names of the Secret and the key."""
        return self.name, self.key or DEFAULT_KEY

    @property
    def file_name(self) -> str:
        """Return the name of the file that has the password."""
        name, key = self.in_secret
        return name if key == DEFAULT_KEY else f"{name}.{key}"


class LocalCidr(Model):
    """Pools for the two ends of the veth: the router takes the first usable address, node ``i`` the next ones."""

    ipv4: Ipv4Subnet | None = Field(default=None, description="IPv4 pool of the veth, the same on every node.")
    ipv6: Ipv6Subnet | None = Field(default=None, description="IPv6 pool of the veth, the same on every node.")

    @check("has(self.ipv4) || has(self.ipv6)", "set at least one of ipv4 and ipv6")
    def _some_family(self) -> bool:
        return self.ipv4 is not None or self.ipv6 is not None


class ProbeSettings(Model):
    """Pings from the router, in the session's VRF. What does not answer is reported; nothing is changed for it."""

    targets: tuple[Address, ...] = Field(
        default=(),
        max_length=MAX_PROBE_TARGETS,
        description="Addresses to ping besides the host's end of the session, reachable in the session's VRF.",
    )
    interval_seconds: int = Field(
        default=10, strict=True, ge=1, le=3600, description="Time between two pings of an address."
    )
    count: int = Field(
        default=3,
        strict=True,
        ge=1,
        le=100,
        description="Pings in a row without an answer after which the address counts as unreachable.",
    )


class HostSession(Model):
    """BGP with a speaker on the host."""

    asn: Asn = Field(description="AS number of the router's side.")
    host_asn: Asn | None = Field(
        default=None,
        alias="hostASN",
        description="AS number of the host's BGP speaker. Mutually exclusive with hostType.",
    )
    host_type: Literal["External", "Internal"] | None = Field(
        default=None, description="External: any AS but asn; Internal: the same AS. Mutually exclusive with hostASN."
    )
    local_cidr: LocalCidr | None = Field(
        default=None,
        alias="localCIDR",
        description="Address pools of the session's veth pair. Mutually exclusive with localCIDRs.",
    )
    local_cidrs: tuple[Subnet, ...] | None = Field(
        default=None,
        alias="localCIDRs",
        min_length=1,
        max_length=2,
        description="Address pools of the session's veth pair, at most one per family, the same on every node: the "
        "router takes the first usable address, node i the next ones. Mutually exclusive with localCIDR.",
    )
    password: SecretText | None = Field(
        default=None, description="TCP-MD5 password. Mutually exclusive with passwordSecret."
    )
    password_secret: SecretReference | None = Field(default=None, description=REFERENCE_HELP)
    ttl_security_hops: TtlSecurityHops | None = Field(
        default=None,
        description="Accept packets only from this many hops away (RFC 5082, which the host's speaker must use too): "
        "1 for a speaker on the host itself.",
    )
    maximum_prefixes: PrefixLimit | None = Field(
        default=None,
        description="Prefixes in one address family after which the session is closed for 5 min; absent: 10000.",
    )
    allowed_prefixes: tuple[Cidr, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_ALLOWED_PREFIXES,
        description="Networks that the host may announce, or parts of, in both families; absent: any.",
    )
    host_vrf: bool | None = Field(
        default=None,
        strict=True,
        alias="hostVRF",
        description="true: the session's end in the host is in a VRF of the host, host-v-<vni> (pt-vrf of a "
        "passthrough), so that the host does not forward between this network and others. Its BGP speaker must be in "
        "that VRF too.",
    )

    probe: ProbeSettings | None = Field(
        default=None,
        description="Pings of the host's end of the session, and of other addresses in its VRF; absent: none. An "
        "address that does not answer makes the resource fail in part (ProbeFailed); nothing is taken down.",
    )

    @field_validator("local_cidrs")
    @classmethod
    @cel(ONE_OF_EACH_FAMILY, "at most one IPv4 and one IPv6 network", field="localCIDRs")
    def _one_pool_a_family(cls, pools: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if pools is None else one_of_each_family(pools, "network")

    @check("has(self.localCIDR) != has(self.localCIDRs)", "set exactly one of localCIDR and localCIDRs")
    def _one_form_of_pools(self) -> bool:
        return (self.local_cidr is None) != (self.local_cidrs is None)

    @check("has(self.hostASN) != has(self.hostType)", "set exactly one of hostASN and hostType")
    def _one_remote(self) -> bool:
        return (self.host_asn is None) != (self.host_type is None)

    @check("!has(self.password) || !has(self.passwordSecret)", "set at most one of password and passwordSecret")
    def _one_password(self) -> bool:
        return self.password is None or self.password_secret is None

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the pools in whichever form they are written, IPv4 first."""
        if self.local_cidr is None:
            return tuple(sorted(self.local_cidrs or (), key=lambda pool: parse_cidr(pool).version))
        return tuple(pool for pool in (self.local_cidr.ipv4, self.local_cidr.ipv6) if pool is not None)

    @property
    def families(self) -> tuple[Family, ...]:
        """Return the families of the pools, IPv4 first."""
        return tuple(Family.IPV4 if parse_cidr(pool).version == 4 else Family.IPV6 for pool in self.pools)

    def field_of(self, pool: str) -> str:
        """Return where a pool is written, below the session."""
        if self.local_cidrs is not None:
            return f"localCIDRs[{self.local_cidrs.index(pool)}]"
        return f"localCIDR.ipv{parse_cidr(pool).version}"

    @property
    def remote_as(self) -> RemoteAS:
        """Return what FRR takes for the host's AS."""
        return remote_as(self.host_asn, self.host_type)


def _pools_in(session: str) -> str:
    """Return the CEL form of :attr:`HostSession.pools`, in no order."""
    parts = (
        f"(has({session}.localCIDR) && has({session}.localCIDR.ipv{version}) ? [{session}.localCIDR.ipv{version}] : [])"
        for version in (4, 6)
    )
    return f"(has({session}.localCIDRs) ? {session}.localCIDRs : {' + '.join(parts)})"


#: A session whose addresses stay: others rely on them. Only the form in which they are written may change.
LastingHostSession = Annotated[
    HostSession,
    Cel(
        f"{_pools_in('self')}.size() == {_pools_in('oldSelf')}.size()"
        f" && {_pools_in('self')}.all(pool, pool in {_pools_in('oldSelf')})",
        "the networks of localCIDR and localCIDRs cannot be changed; delete the object and create it again",
    ),
]
