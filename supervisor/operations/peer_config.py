"""Configuration of the host's BGP speaker (FRR, BIRD, MetalLB) for its session with the router. Pure.

Addresses, AS numbers and the VRF are this node's. A password is never shown: a comment says where it is configured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from actors.netlink.planning.observed import PASSTHROUGH_HOST, PASSTHROUGH_VRF, host_veth, host_vrf
from config.desired import DesiredL3VNI, DesiredPassthrough, DesiredSession, DesiredState, SessionAddresses

from .documents import to_yaml
from .exit_codes import USAGE, CommandError

#: A route of another node's host has that host's AS in its path: once, so that no loop can become longer than that.
_OWN_AS_TIMES = 1


@dataclass(frozen=True, slots=True)
class _Peer:
    """One session as the host sees it. ``host_as`` is a number, or a phrase if the host may choose one.

    ``vrf`` is the host's, empty for none.
    """

    name: str
    host_as: int | str
    vrf: str
    session: DesiredSession
    addresses: SessionAddresses

    @property
    def router(self) -> str:
        return str(self.addresses.router.ip)

    @property
    def family(self) -> str:
        return f"ipv{self.addresses.router.version}"


def peer_config(desired: DesiredState, name: str) -> str:
    """Return the configuration for the host's sessions with an L3VNI (its VNI, VRF or name) or ``passthrough``.

    Raises :class:`CommandError` if there is none.
    """
    owner = _owner(desired, name)
    session = owner.session
    if session is None:
        raise CommandError(f"{owner.resource} has no hostSession", USAGE)
    if isinstance(owner, DesiredL3VNI):
        word, device, vrf = owner.vrf, host_veth(owner.vni), host_vrf(owner.vni)
    else:
        word, device, vrf = "passthrough", PASSTHROUGH_HOST, PASSTHROUGH_VRF
    host_as, vrf = _host_as(session), vrf if session.host_vrf else ""
    peers = [_Peer(f"{word}-ipv{one.router.version}", host_as, vrf, session, one) for one in session.addresses]
    lines = [f"# {owner.resource} on {desired.node_name}, configured in {owner.origin}"]
    lines += [f"# {device}: host {one.host}, router {one.router.ip} AS {session.asn}" for one in session.addresses]
    lines += [] if isinstance(host_as, int) else [f"# {host_as}: any AS number but {session.asn}"]
    lines += [f"# PASSWORD: the one of {owner.resource}"] if session.password else []
    lines += ["# ttlSecurityHops: a BGPPeer of MetalLB has none, and its session stays down"] * bool(
        session.ttl_security_hops
    )
    lines += [f"# allowas-in, allow local as: for the routes of other nodes' hosts, which have AS {host_as} too"]
    lines += ["", "# FRR", *_frr(peers), "", "# BIRD 2", *_bird(peers), "", "# MetalLB", *_metallb(peers)]
    return "\n".join(lines)


def _owner(desired: DesiredState, name: str) -> DesiredL3VNI | DesiredPassthrough:
    if name == "passthrough" and desired.passthrough:
        return desired.passthrough
    for vni in desired.l3vnis:
        if name in (str(vni.vni), vni.vrf, vni.resource.display_name):
            return vni
    known = [vni.resource.display_name for vni in desired.l3vnis if vni.session]
    known += ["passthrough"] if desired.passthrough else []
    raise CommandError(f"there is no L3VNI {name}; sessions with the host: {', '.join(known) or 'none'}", USAGE)


def _host_as(session: DesiredSession) -> int | str:
    if isinstance(session.remote_as, int):
        return session.remote_as
    return session.asn if session.remote_as == "internal" else "HOST-AS"


def _frr(peers: list[_Peer]) -> Iterator[str]:
    yield f"router bgp {peers[0].host_as}" + (f" vrf {peers[0].vrf}" if peers[0].vrf else "")
    yield " no bgp ebgp-requires-policy"
    yield " no bgp default ipv4-unicast"
    for peer in peers:
        yield f" neighbor {peer.router} remote-as {peer.session.asn}"
        if peer.session.password:
            yield f" neighbor {peer.router} password PASSWORD"
        if peer.session.ttl_security_hops:
            yield f" neighbor {peer.router} ttl-security hops {peer.session.ttl_security_hops}"
    for peer in peers:
        yield f" address-family {peer.family} unicast"
        yield f"  neighbor {peer.router} activate"
        yield f"  neighbor {peer.router} allowas-in {_OWN_AS_TIMES}"
        yield " exit-address-family"
    yield "exit"


def _bird(peers: list[_Peer]) -> Iterator[str]:
    for peer in peers:
        yield f"protocol bgp {peer.name.replace('-', '_')} {{"
        if peer.vrf:
            yield f'  vrf "{peer.vrf}";'
        yield f"  local {peer.addresses.host.ip} as {peer.host_as};"
        yield f"  neighbor {peer.router} as {peer.session.asn};"
        if peer.session.password:
            yield '  password "PASSWORD";'
        if peer.session.ttl_security_hops:
            yield "  ttl security on;"
        yield f"  allow local as {_OWN_AS_TIMES};"
        yield f"  {peer.family} {{ import all; export all; }};"
        yield "}"


def _metallb(peers: list[_Peer]) -> Iterator[str]:
    for peer in peers:
        spec: dict[str, Any] = {"myASN": peer.host_as, "peerASN": peer.session.asn, "peerAddress": peer.router}
        if peer.session.password:
            # A Secret of type kubernetes.io/basic-auth beside it, with the key password.
            spec["passwordSecret"] = {"name": f"{peer.name}-password"}
        if peer.vrf:
            spec["vrf"] = peer.vrf
        yield "---"
        yield to_yaml(
            {
                "apiVersion": "metallb.io/v1beta2",
                "kind": "BGPPeer",
                "metadata": {"name": peer.name.lower().replace("_", "-"), "namespace": "metallb-system"},
                "spec": spec,
            }
        ).rstrip()
