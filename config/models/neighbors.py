"""A BGP neighbour of the underlay."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from config.desired import BGPFamily, EndpointKind, Family, RemoteAS

from .base import Model
from .names import NeighborInterface
from .rules import NOT_YET, Default, OneEach, cel, check
from .sessions import REFERENCE_HELP, SecretReference, remote_as
from .types import (
    Address,
    Asn,
    Cidr,
    PrefixLimit,
    SecretText,
    TtlSecurityHops,
    parse_address,
    parse_cidr,
)

#: RFC 4271 section 4.2: a hold time is 0 or at least three seconds.
MIN_HOLD_TIME = 3


def first_duplicate(values: Iterable[Hashable]) -> int | None:
    """Return the index of the first value that was there before, or None."""
    seen: set[Hashable] = set()
    for index, value in enumerate(values):
        if value in seen:
            return index
        seen.add(value)
    return None


class EbgpMultiHop(Model):
    """Parameters of multihop eBGP."""

    ttl: int = Field(default=255, strict=True, ge=1, le=255, description="Maximum number of hops to the neighbour.")


class NeighborProperty(Model):
    """An optional feature of a session."""

    type: Literal["ebgpMultiHop"] = Field(description="Name of the feature.")
    ebgp_multi_hop: Annotated[EbgpMultiHop, Default({})] = Field(
        default_factory=EbgpMultiHop, description="Parameters of ebgpMultiHop."
    )


class BfdSettings(Model):
    """Bidirectional forwarding detection; an empty object means FRR's defaults."""

    receive_interval: int | None = Field(
        default=None, strict=True, ge=10, le=60000, description="Shortest receive interval in ms; FRR's default is 300."
    )
    transmit_interval: int | None = Field(
        default=None,
        strict=True,
        ge=10,
        le=60000,
        description="Shortest transmit interval in ms; FRR's default is 300.",
    )
    detect_multiplier: int | None = Field(
        default=None,
        strict=True,
        ge=2,
        le=255,
        description="Missed packets after which the session is down; FRR's default is 3.",
    )
    session_mode: Literal["Active", "Passive"] = Field(
        default="Active", description="Passive waits for the neighbour to start the session."
    )
    minimum_ttl: int | None = Field(
        default=None, alias="minimumTTL", strict=True, ge=1, le=254, description="Multihop only: smallest TTL accepted."
    )


class FamilyProperty(Model):
    """An optional feature of one address family of a neighbour."""

    type: Literal["routeReflectorClient"] = Field(
        description="routeReflectorClient: routes of other internal neighbours are reflected to it, and its routes to "
        "them, with their next hops unchanged (RFC 4456). Needs a neighbour of type Internal."
    )


class NeighborFamily(Model):
    """One BGP address family of a neighbour."""

    type: Literal["ipv4unicast", "ipv6unicast", "evpn"] = Field(description="The address family.")
    properties: Annotated[tuple[FamilyProperty, ...], OneEach("type")] = Field(
        default=(), max_length=8, description="Optional features."
    )

    @model_validator(mode="before")
    @classmethod
    def _not_yet(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("type") in ("ipv4vpn", "ipv6vpn"):
            raise ValueError(f"the vpn address families are {NOT_YET}")
        return data

    @field_validator("properties")
    @classmethod
    def _each_property_once(cls, properties: tuple[FamilyProperty, ...]) -> tuple[FamilyProperty, ...]:
        if first_duplicate(one.type for one in properties) is not None:
            raise ValueError("a property is listed twice")
        return properties


class Neighbor(Model):
    """A BGP peer in the fabric, identified by address, interface (unnumbered) or the range from which it connects."""

    asn: Asn | None = Field(default=None, description="The neighbour's AS number. Mutually exclusive with type.")
    type: Literal["External", "Internal"] | None = Field(
        default=None, description="External: any AS but ours; Internal: our AS. Mutually exclusive with asn."
    )
    address: Address | None = Field(default=None, description="The neighbour's address.")
    interface: NeighborInterface | None = Field(default=None, description="Interface of an unnumbered session.")
    listen_range: Cidr | None = Field(default=None, description="Network from which neighbours may connect.")
    port: int | None = Field(default=None, strict=True, ge=0, le=16384, description="TCP port; FRR's default is 179.")
    password: SecretText | None = Field(
        default=None, description="TCP-MD5 password. Mutually exclusive with passwordSecret."
    )
    password_secret: SecretReference | None = Field(default=None, description=REFERENCE_HELP)
    ttl_security_hops: TtlSecurityHops | None = Field(
        default=None,
        description="Accept packets only from this many hops away (RFC 5082, which both ends must use): 1 for a "
        "neighbour on the link. Excludes ebgpMultiHop.",
    )
    maximum_prefixes: PrefixLimit | None = Field(
        default=None,
        description="Prefixes in one address family after which the session is closed for 5 min; absent: no limit.",
    )
    hold_time_seconds: int | None = Field(
        default=None, strict=True, ge=0, le=65535, description="Hold time; 0 or at least 3. Needs keepaliveTimeSeconds."
    )
    keepalive_time_seconds: int | None = Field(
        default=None, strict=True, ge=0, le=65535, description="Keepalive interval, at most the hold time."
    )
    connect_time_seconds: int | None = Field(
        default=None, strict=True, ge=1, le=65535, description="Time between connection attempts."
    )
    properties: Annotated[tuple[NeighborProperty, ...], OneEach("type")] = Field(
        default=(), max_length=1, description="Optional features."
    )
    bfd: BfdSettings | None = Field(default=None, description="BFD for this session; absent: off.")
    address_families: Annotated[tuple[NeighborFamily, ...], OneEach("type")] = Field(
        default=(), max_length=4, description="Address families; empty: derived from the configuration."
    )

    @field_validator("address", mode="before")
    @classmethod
    def _no_zone(cls, text: Any) -> Any:
        zone = re.fullmatch(r"fe80:[0-9a-fA-F:]*%(?P<name>[a-zA-Z0-9._@+-]{1,15})", str(text))
        if zone:
            raise ValueError(f"for a link-local neighbour write interface: {zone['name']} instead of address")
        return text

    @field_validator("address")
    @classmethod
    @cel(
        "!isIP(self) || !ip(self).isLoopback() && !(ip(self).family() == 6 && ip(self).isLinkLocalUnicast())",
        "must be neither a loopback address nor IPv6 link-local, which needs interface instead of address",
        field="address",
    )
    def _reachable(cls, text: str | None) -> str | None:
        if text is None:
            return None
        address = parse_address(text)
        if address.is_loopback:
            raise ValueError(f"{text} is a loopback address, where no neighbour is")
        if address.version == 6 and address.is_link_local:
            raise ValueError("a link-local neighbour needs interface instead of address")
        return text

    @field_validator("listen_range")
    @classmethod
    @cel(
        "!isCIDR(self) || !cidr('fe80::/10').containsCIDR(self)",
        "must not be an IPv6 link-local range",
        field="listenRange",
    )
    def _no_link_local_range(cls, text: str | None) -> str | None:
        if text is not None and (interface := parse_cidr(text)).version == 6 and interface.network.is_link_local:
            raise ValueError("must not be an IPv6 link-local range")
        return text

    @field_validator("address_families")
    @classmethod
    def _each_family_once(cls, families: tuple[NeighborFamily, ...]) -> tuple[NeighborFamily, ...]:
        if first_duplicate(family.type for family in families) is not None:
            raise ValueError("an address family is listed twice")
        return families

    @check("has(self.asn) != has(self.type)", "set exactly one of asn and type")
    def _one_remote(self) -> bool:
        return (self.asn is None) != (self.type is None)

    @check(
        "[has(self.address), has(self.interface), has(self.listenRange)].filter(given, given).size() == 1",
        "set exactly one of address, interface and listenRange",
    )
    def _one_endpoint(self) -> bool:
        return sum(end is not None for end in (self.address, self.interface, self.listen_range)) == 1

    @check(
        "has(self.holdTimeSeconds) == has(self.keepaliveTimeSeconds)",
        "set both or neither of holdTimeSeconds and keepaliveTimeSeconds",
    )
    def _both_timers(self) -> bool:
        return (self.hold_time_seconds is None) == (self.keepalive_time_seconds is None)

    @check(
        "!has(self.holdTimeSeconds) || self.holdTimeSeconds == 0 || self.holdTimeSeconds >= 3",
        "holdTimeSeconds must be 0 or at least 3",
    )
    def _hold_time_is_legal(self) -> bool:
        return self.hold_time_seconds not in range(1, MIN_HOLD_TIME)

    @check(
        "!has(self.holdTimeSeconds) || !has(self.keepaliveTimeSeconds)"
        " || self.keepaliveTimeSeconds <= self.holdTimeSeconds",
        "keepaliveTimeSeconds must not exceed holdTimeSeconds",
    )
    def _keepalive_fits(self) -> bool:
        hold, keepalive = self.hold_time_seconds, self.keepalive_time_seconds
        return hold is None or keepalive is None or keepalive <= hold

    @check("!has(self.password) || !has(self.passwordSecret)", "set at most one of password and passwordSecret")
    def _one_password(self) -> bool:
        return self.password is None or self.password_secret is None

    @check(
        "!has(self.ttlSecurityHops) || !has(self.properties) || self.properties.size() == 0",
        "set at most one of ttlSecurityHops and ebgpMultiHop",
    )
    def _one_range_of_hops(self) -> bool:
        return self.ttl_security_hops is None or not self.properties

    @check(
        "!has(self.addressFamilies) || !self.addressFamilies.exists(family, has(family.properties)"
        " && family.properties.exists(one, one.type == 'routeReflectorClient'))"
        " || has(self.type) && self.type == 'Internal'",
        "a routeReflectorClient needs type: Internal",
    )
    def _client_is_internal(self) -> bool:
        return self.type == "Internal" or not self.reflected_families

    @property
    def reflected_families(self) -> tuple[BGPFamily, ...]:
        """Return the families in which the neighbour is a route reflector's client, in the usual order."""
        written = {family.type for family in self.address_families if family.properties}
        return tuple(family for family in BGPFamily if family.value in written)

    @property
    def endpoint_kind(self) -> EndpointKind:
        """Return how the neighbour is found."""
        if self.address is not None:
            return EndpointKind.ADDRESS
        return EndpointKind.INTERFACE if self.interface is not None else EndpointKind.LISTEN_RANGE

    @property
    def endpoint(self) -> str:
        """Return the endpoint in canonical text: addresses compressed, ranges masked."""
        if self.address is not None:
            return str(parse_address(self.address))
        if self.listen_range is not None:
            return str(parse_cidr(self.listen_range).network)
        return self.interface or ""

    @property
    def family(self) -> Family:
        """Return the endpoint's family; unnumbered counts as IPv4 (reference 5.4)."""
        return Family.IPV6 if ":" in self.endpoint and self.interface is None else Family.IPV4

    @property
    def remote_as(self) -> RemoteAS:
        """Return what FRR takes for the neighbour's AS."""
        return remote_as(self.asn, self.type)

    @property
    def explicit_families(self) -> tuple[BGPFamily, ...]:
        """Return the families that the user wrote, in the order in which they are always listed."""
        written = {family.type for family in self.address_families}
        return tuple(family for family in BGPFamily if family.value in written)
