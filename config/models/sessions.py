"""The BGP session between the router and the host over a veth pair."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from config.desired import Family, RemoteAS

from .base import Model
from .rules import Cel, check
from .types import (
    REFERENCE_HELP,
    Asn,
    Cidr,
    Ipv4Subnet,
    Ipv6Subnet,
    PrefixLimit,
    SecretName,
    SecretText,
    TtlSecurityHops,
)

#: Networks that a host may announce: enough for pools of services, few enough for FRR to take at once.
MAX_ALLOWED_PREFIXES = 256

#: How FRR spells the typed relation.
_WORDS = {"External": "external", "Internal": "internal"}


def remote_as(number: int | None, relation: str | None) -> RemoteAS:
    """Return FRR's ``remote-as``: the number, or the keyword for the relation."""
    return number if number is not None else _WORDS[relation or "External"]


def is_external(remote: RemoteAS, own: int) -> bool:
    """Whether a session is eBGP seen from an instance with AS ``own``."""
    return remote == "external" if isinstance(remote, str) else remote != own


class LocalCidr(Model):
    """Pools for the two ends of the veth: the router takes the first usable address, node ``i`` the next ones."""

    ipv4: Ipv4Subnet | None = Field(default=None, description="IPv4 pool of the veth, the same on every node.")
    ipv6: Ipv6Subnet | None = Field(default=None, description="IPv6 pool of the veth, the same on every node.")

    @check("has(self.ipv4) || has(self.ipv6)", "set at least one of ipv4 and ipv6")
    def _some_family(self) -> bool:
        return self.ipv4 is not None or self.ipv6 is not None

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the pools that are set, IPv4 first."""
        return tuple(pool for pool in (self.ipv4, self.ipv6) if pool is not None)

    @property
    def families(self) -> tuple[Family, ...]:
        """Return the families that are set, IPv4 first."""
        pairs = ((self.ipv4, Family.IPV4), (self.ipv6, Family.IPV6))
        return tuple(family for pool, family in pairs if pool is not None)


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
    local_cidr: Annotated[
        LocalCidr, Cel("self == oldSelf", "localCIDR cannot be changed; delete the object and create it again")
    ] = Field(alias="localCIDR", description="Address pools of the session's veth pair.")
    password: SecretText | None = Field(
        default=None, description="TCP-MD5 password. Mutually exclusive with passwordSecret."
    )
    password_secret: SecretName | None = Field(default=None, description=REFERENCE_HELP)
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

    @check("has(self.hostASN) != has(self.hostType)", "set exactly one of hostASN and hostType")
    def _one_remote(self) -> bool:
        return (self.host_asn is None) != (self.host_type is None)

    @check("!has(self.password) || !has(self.passwordSecret)", "set at most one of password and passwordSecret")
    def _one_password(self) -> bool:
        return self.password is None or self.password_secret is None

    @property
    def remote_as(self) -> RemoteAS:
        """Return what FRR takes for the host's AS."""
        return remote_as(self.host_asn, self.host_type)
