"""The scalar types of the schemas, each with its range or grammar.

Whatever reaches an FRR template or names a device is defined here or in :mod:`.names`, and its grammar admits no
whitespace, newline or ``!``. Integers are strict: ``"100"`` and ``true`` are not numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from config.desired import IPAddress, IPInterface, Secret

from .rules import Cel, Text

#: Four-octet AS number (RFC 6793); 0 is reserved (RFC 7607).
Asn = Annotated[int, Field(strict=True, ge=1, le=4294967295)]
#: VXLAN network identifier, 24 bits (RFC 7348); 0 is not usable.
Vni = Annotated[int, Field(strict=True, ge=1, le=16777215)]
#: UDP port. The custom resource sets no range; the kernel takes only these.
UdpPort = Annotated[int, Field(strict=True, ge=1, le=65535)]

#: Stands for every namespace.
ALL_NAMESPACES: Final = "*"
#: A Kubernetes namespace (RFC 1123 label), or :data:`ALL_NAMESPACES`.
NamespacePattern = Annotated[str, Field(pattern=r"^(\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)$", max_length=63)]

#: Parsed addresses and networks that are kept at most, of each kind. A kilobyte each.
KEPT_ADDRESSES: Final = 4096
#: Longest text of an IPv6 address: eight groups of four digits. A network has a slash and three digits more.
_ADDRESS_CHARACTERS: Final = 39
_CIDR_CHARACTERS: Final = 43
#: No leading zeros in the length, since Go's parser (so the API server) takes none.
_CIDR: Final = re.compile(r"[0-9A-Fa-f:.]+/(0|[1-9][0-9]{0,2})", re.ASCII)


@lru_cache(KEPT_ADDRESSES)
def parse_address(text: str) -> IPAddress:
    """Parse an address without scope. Raises ValueError with what was expected."""
    if len(text) > _ADDRESS_CHARACTERS or "%" in text:
        raise ValueError("must be an IPv4 or IPv6 address without a zone")
    if _CIDR.fullmatch(text):
        raise ValueError(f'must be an address without a prefix length: remove "/{text.partition("/")[2]}"')
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError("must be an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        raise ValueError("IPv4-mapped IPv6 addresses are not supported: write the IPv4 address")
    return address


@lru_cache(KEPT_ADDRESSES)
def parse_cidr(text: str) -> IPInterface:
    """Parse ``address/length``, host bits allowed. Raises ValueError with what was expected."""
    wanted = "must be an address with a prefix length, such as 192.0.2.0/24 or 2001:db8::/64"
    if len(text) > _CIDR_CHARACTERS or not _CIDR.fullmatch(text):
        raise ValueError(wanted)
    try:
        interface = ip_interface(text)
    except ValueError:
        raise ValueError(wanted) from None
    if isinstance(interface.ip, IPv6Address) and interface.ip.ipv4_mapped:
        raise ValueError("IPv4-mapped IPv6 networks are not supported: write the IPv4 network")
    return interface


def _check_address(text: str) -> str:
    parse_address(text)
    return text


def _check_cidr(text: str) -> str:
    parse_cidr(text)
    return text


def _check_ipv4_address(text: str) -> str:
    if parse_address(text).version != 4:
        raise ValueError("must be an IPv4 address, such as 192.0.2.1")
    return text


def _check_ipv4_cidr(text: str) -> str:
    if parse_cidr(text).version != 4:
        raise ValueError("must be an IPv4 network, such as 192.0.2.0/24")
    return text


def _check_ipv6_cidr(text: str) -> str:
    if parse_cidr(text).version != 6:
        raise ValueError("must be an IPv6 network, such as 2001:db8::/64")
    return text


#: The text stays as written, so that what is shown is what the user knows; consumers parse it again.
Address = Annotated[
    str,
    AfterValidator(_check_address),
    Text(max_length=_ADDRESS_CHARACTERS),
    Cel("isIP(self)", "must be an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1"),
]
Ipv4Address = Annotated[
    str,
    AfterValidator(_check_ipv4_address),
    Text(max_length=_ADDRESS_CHARACTERS),
    Cel("isIP(self) && ip(self).family() == 4", "must be an IPv4 address, such as 192.0.2.1"),
]
Cidr = Annotated[
    str,
    AfterValidator(_check_cidr),
    Text(max_length=_CIDR_CHARACTERS),
    Cel("isCIDR(self)", "must be an address with a prefix length, such as 192.0.2.0/24 or 2001:db8::/64"),
]
Ipv4Cidr = Annotated[
    str,
    AfterValidator(_check_ipv4_cidr),
    Text(max_length=_CIDR_CHARACTERS),
    Cel("isCIDR(self) && cidr(self).ip().family() == 4", "must be an IPv4 network, such as 192.0.2.0/24"),
]
Ipv6Cidr = Annotated[
    str,
    AfterValidator(_check_ipv6_cidr),
    Text(max_length=_CIDR_CHARACTERS),
    Cel("isCIDR(self) && cidr(self).ip().family() == 6", "must be an IPv6 network, such as 2001:db8::/64"),
]


#: Where no tunnel endpoint, gateway or end of a session can be, and what is there instead (RFC 6890, RFC 4291).
NEVER_USABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "0.0.0.0/8": "unspecified",
        "127.0.0.0/8": "loopback",
        "169.254.0.0/16": "link-local",
        "224.0.0.0/3": "multicast and reserved",
        "::/96": "unspecified and loopback",
        "fe80::/10": "link-local",
        "ff00::/8": "multicast",
    }
)

#: The same, parsed once.
_NEVER: Final = tuple(map(ip_network, NEVER_USABLE))


@dataclass(frozen=True, slots=True)
class Range:
    """A range that is put on a device or announced: not where no such address can be, and not shorter than this."""

    ipv4: int
    ipv6: int

    def check(self, text: str) -> str:
        """Return the text of a network. Raises ValueError with the range that it overlaps, or the shortest length."""
        network = parse_cidr(text).network
        never = next((one for one in _NEVER if network.overlaps(one)), None)
        if never is not None:
            how = "is in" if network.prefixlen >= never.prefixlen else "overlaps"
            raise ValueError(f"{network} {how} {never} ({NEVER_USABLE[str(never)]}): use routable unicast addresses")
        shortest = self.ipv4 if network.version == 4 else self.ipv6
        if network.prefixlen < shortest:
            raise ValueError(f"a prefix length of at least {shortest} is needed, this is {network.prefixlen}")
        return text

    def marks(self) -> tuple[object, ...]:
        """Return the validator with both its forms in CEL."""
        names = ", ".join(f"'{one}'" for one in NEVER_USABLE)
        return (
            AfterValidator(self.check),
            Cel(
                f"!isCIDR(self) || [{names}].all(one, !cidr(one).containsCIDR(self) && !cidr(self).containsCIDR(one))",
                "must not overlap the unspecified, loopback, link-local and multicast networks",
            ),
            Cel(
                "!isCIDR(self) || cidr(self).prefixLength() >= "
                f"(cidr(self).ip().family() == 4 ? {self.ipv4} : {self.ipv6})",
                f"needs a prefix length of at least {self.ipv4} for IPv4 and {self.ipv6} for IPv6",
            ),
        )


#: The subnet of one link, whose connected route takes all of it from the machine: 65 534 addresses are more than the
#: nodes of any cluster (Kubernetes' limit is 5 000), and a link's IPv6 subnet is a /64 (RFC 7421).
_LINK: Final = Range(16, 64).marks()
#: A pool of single addresses: it only has to be distinct. An allocation from a registry is a /8 or a /32 at the most.
_POOL: Final = Range(8, 32).marks()
Ipv4Subnet = Annotated[Ipv4Cidr, *_LINK]
Ipv6Subnet = Annotated[Ipv6Cidr, *_LINK]
Subnet = Annotated[Cidr, *_LINK]
Pool = Annotated[Cidr, *_POOL]


def one_of_each_family(cidrs: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return the networks. Raises ValueError for two of one IP version."""
    if len({parse_cidr(cidr).version for cidr in cidrs}) != len(cidrs):
        raise ValueError(f"at most one IPv4 and one IPv6 {what}")
    return cidrs


#: :func:`one_of_each_family` for the API server.
ONE_OF_EACH_FAMILY: Final = (
    "[4, 6].all(version, self.filter(one, isCIDR(one) && cidr(one).ip().family() == version).size() <= 1)"
)

#: The longest route target upstream's schema admits.
_RT_CHARACTERS: Final = 21
_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_MAX_16: Final = 65535
_MAX_32: Final = 4294967295


def _number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{what} must be a decimal number")
    return int(text)


def check_route_target(text: str, what: str = "a route target") -> str:
    """Accept ``ASN:number`` or ``IPv4:number`` (RFC 4360; four-octet AS: RFC 5668); return it without leading zeros.

    The administrator's size decides the other half's: 16 bits beside an IPv4 address or an AS above 65535, else 32.
    """
    if len(text) > _RT_CHARACTERS:
        raise ValueError(f"{what} must have at most {_RT_CHARACTERS} characters")
    left, colon, right = text.partition(":")
    if not colon or ":" in right:
        raise ValueError(f"{what} must have exactly one ':', such as 64514:100 or 192.0.2.1:100")
    if "." in left:
        limit = _route_target_address(left)
    else:
        asn = _number(left, "the AS before ':'")
        if asn > _MAX_32:
            raise ValueError(f"the AS before ':' must be at most {_MAX_32}")
        limit = _MAX_32 if asn <= _MAX_16 else _MAX_16
        left = str(asn)
    number = _number(right, "the number after ':'")
    if number > limit:
        before = "an IPv4 address" if "." in left else f"an AS {'above' if limit == _MAX_16 else 'up to'} {_MAX_16}"
        raise ValueError(f"after {before} the number is at most {limit}")
    return f"{left}:{number}"


def _route_target_address(left: str) -> int:
    try:
        IPv4Address(left)
    except ValueError:
        raise ValueError("the part before ':' must be an AS number or an IPv4 address") from None
    return _MAX_16


def check_route_distinguisher(text: str) -> str:
    """Accept what has the form of a route target (RFC 4364, 4.2); return it without leading zeros."""
    return check_route_target(text, "a route distinguisher")


_TARGET_TEXT: Final = Text(pattern=r"^([0-9]{1,10}|[0-9]+\.[0-9.]+):[0-9]{1,10}$", max_length=_RT_CHARACTERS)
_TARGET_SIZES: Final = Cel(
    "self.contains('.') ? isIP(self.split(':')[0]) && int(self.split(':')[1]) <= 65535"
    " : int(self.split(':')[0]) <= 4294967295"
    " && int(self.split(':')[1]) <= (int(self.split(':')[0]) <= 65535 ? 4294967295 : 65535)",
    "the number after ':' has 16 bits after an IPv4 address or an AS above 65535, else 32; an AS has at most 32",
)
RouteTarget = Annotated[str, AfterValidator(check_route_target), _TARGET_TEXT, _TARGET_SIZES]
RouteDistinguisher = Annotated[str, AfterValidator(check_route_distinguisher), _TARGET_TEXT, _TARGET_SIZES]


#: FRR's limit is 128; the kernel's TCP-MD5 key takes 80 (TCP_MD5SIG_MAXKEYLEN), which FRR reports by itself.
_PASSWORD_CHARACTERS: Final = 128
_PASSWORD: Final = re.compile(r"[!-~]+", re.ASCII)


def check_password(text: str) -> str:
    """Accept 1 to 128 printable ASCII characters without spaces. The error never shows the text."""
    if len(text) > _PASSWORD_CHARACTERS or not _PASSWORD.fullmatch(text):
        raise ValueError("a password must have 1 to 128 printable ASCII characters and no spaces")
    return text


class _SecretSchema:
    """Lets pydantic turn text into a :class:`Secret`, and write it back only as stars."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            lambda text: Secret(check_password(text)),
            core_schema.str_schema(coerce_numbers_to_str=True),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda _: "********"),
        )


#: What ``passwordSecret`` is: the name of a file or Secret.
SecretName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=253)]
#: A key of a Secret's data (Kubernetes: "Secrets").
SecretKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", min_length=1, max_length=253)]
#: Hops of RFC 5082: packets with a smaller time to live are dropped.
TtlSecurityHops = Annotated[int, Field(strict=True, ge=1, le=254)]
#: FRR's range of a limit for prefixes.
PrefixLimit = Annotated[int, Field(strict=True, ge=1, le=4294967295)]

#: A password: text in, :class:`~config.desired.Secret` out.
SecretText = Annotated[
    Secret,
    _SecretSchema,
    Text(pattern=f"^{_PASSWORD.pattern}$", min_length=1, max_length=_PASSWORD_CHARACTERS),
]
