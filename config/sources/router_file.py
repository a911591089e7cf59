"""Parses one router configuration file into resources.

An error that makes the whole file doubtful (not YAML, an unknown or ill-typed top-level key) refuses the file. An error
inside an entry refuses that entry only, which stays visible as an unusable resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from config.api import API_VERSION, RETIRED_GROUP, VERSION
from config.desired import Secret
from config.models import L2Vni, Model
from config.models.passwords import Place, sessions_of, with_passwords
from config.models.rules import NOT_YET
from config.models.sessions import HostSession
from config.models.types import parse_cidr
from config.models.underlay import LATER_FEATURES, Underlay
from config.problems import RUNNING_KEPT, Kind, Origin, Problem, Reason, ResourceId, Severity
from config.resources import Resource, Unusable, passthrough_families
from config.syntax.model_errors import case_match, case_warning, known_keys, suggestion, validate
from config.syntax.secret_files import Passwords, SecretUnusableError, open_to_others
from config.syntax.yaml_reader import Document, FieldPath, InvalidYamlError, format_path, parse_path, parse_yaml

from .former_spellings import Rewrite, names_by_vrf, rewrites, rewritten, written
from .naming import PASSTHROUGH, SECTIONS, Entry, ListSection, RouterFile, entry_suffix, resource_name, spec_of

_PASSTHROUGH_KEY: Final = "bgppassthrough"
#: Part of upstream's format, but nothing that this version carries out.
_L3VPN_KEY: Final = "l3vpns"
#: Which schema the file follows, for programs that write files; there is one so far.
_VERSION_KEYS: Final = ("apiVersion", "version")
_VERSIONS: Final = (API_VERSION, VERSION)
_RETIRED_VERSION: Final = f"{RETIRED_GROUP}/{VERSION}"
_KEYS: Final = (*known_keys(RouterFile), _L3VPN_KEY, *_VERSION_KEYS)
_LAST_GOOD_KEPT: Final = "the last good password stays in force"


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file's entries. ``usable`` False: the file is refused as a whole, for the reasons in ``problems``.

    ``text`` is what the entries were parsed from, and what to store; None when it is unknown.
    """

    path: Path
    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    usable: bool = True
    text: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class _Context:
    """What reading the entries of one file needs."""

    document: Document
    path: Path
    node_name: str
    namespace: str
    mode: int
    passwords: Passwords
    #: Names of the file's L3VNIs by their VRFs, by which segments formerly referred to them.
    l3vnis: Mapping[str, str]


def parse_router_file(
    content: bytes,
    path: Path,
    node_name: str,
    *,
    namespace: str = "openperouter-system",
    mode: int = 0o600,
    passwords: Passwords | None = None,
) -> FileContent:
    """Parse a file's bytes; never raises. Reads the password files that its underlays refer to, with ``passwords``.

    ``mode`` are the file's permission bits, for a warning about passwords that others can read.
    """
    try:
        document = parse_yaml(content, str(path))
    except InvalidYamlError as error:
        return FileContent(path, problems=error.problems, usable=False)
    data = document.data()
    if data is None:
        return FileContent(path)
    if not isinstance(data, dict):
        message = f"must be a mapping: entries are below a key, such as {next(iter(SECTIONS))}:"
        problem = _file_problem(message, document, ())
        return FileContent(path, problems=(problem,), usable=False)
    if "kind" in data:
        problem = _file_problem(_for_an_object(str(data["kind"])), document, ())
        return FileContent(path, problems=(problem,), usable=False)
    problems: list[Problem] = []
    sections = _sections(data, document, problems)
    if any(problem.severity is Severity.ERROR for problem in problems):
        return FileContent(path, problems=tuple(problems), usable=False)
    names = names_by_vrf(sections["l3vnis"][1] if "l3vnis" in sections else ())
    context = _Context(document, path, node_name, namespace, mode, passwords or Passwords(), names)
    entries = tuple(_entries(sections, context, problems))
    return FileContent(path, entries, tuple(problems))


def _for_an_object(kind: str) -> str:
    """Return what to do with a Kubernetes object that was pasted into a file."""
    keys = {section.kind: name for name, section in SECTIONS.items()}
    if kind == Kind.L3PASSTHROUGH:
        place = f"below {_PASSTHROUGH_KEY}:"
    else:
        place = f"as an entry below {keys[Kind(kind)]}:" if kind in keys else "below the key of its kind"
    return f"this is a Kubernetes object; a router file has the content of its spec {place}"


def _file_problem(message: str, document: Document, path: FieldPath) -> Problem:
    return Problem(
        message=message, origin=document.key_origin(path), field=format_path(path), reason=Reason.FILE_INVALID
    )


def _sections(data: Mapping[str, Any], document: Document, problems: list[Problem]) -> dict[str, tuple[str, Any]]:
    """Return the top-level values by their proper key, each with the key as written."""
    sections: dict[str, tuple[str, Any]] = {}
    for key, value in data.items():
        name = key if key in _KEYS else case_match(key, _KEYS)
        if name is None:
            hint = suggestion(key, _KEYS, useless=(_L3VPN_KEY,))
            problems.append(_file_problem(f"unknown key; {hint}", document, (key,)))
            continue
        if name != key:
            problems.append(case_warning(document, (key,), name))
        if name in sections:
            problems.append(_file_problem(f"given twice: also as {sections[name][0]!r}", document, (key,)))
        if name in _VERSION_KEYS:
            problems += _check_version(value, document, key)
            continue
        wanted = dict if name == _PASSTHROUGH_KEY else list
        if value is not None and not isinstance(value, wanted):
            message = (
                "must be a mapping (key: value)" if wanted is dict else 'must be a list: each entry begins with "- "'
            )
            problems.append(replace(_file_problem(message, document, (key,)), origin=document.origin((key,))))
        sections[name] = (key, value or wanted())
    return sections


def _check_version(value: Any, document: Document, key: str) -> Iterator[Problem]:
    if value in _VERSIONS or value is None:
        return
    problem = replace(_file_problem(f"must be {API_VERSION}", document, (key,)), origin=document.origin((key,)))
    if value == _RETIRED_VERSION:
        problem = replace(problem, message=f"not used any more: write {API_VERSION}", severity=Severity.WARNING)
    yield problem


def _entries(sections: Mapping[str, tuple[str, Any]], context: _Context, problems: list[Problem]) -> Iterator[Entry]:
    for name, section in SECTIONS.items():
        key, values = sections.get(name, (name, []))
        for index, data in enumerate(values):
            yield _entry(section, data, (key, index), index, context)
    key, data = sections.get(_PASSTHROUGH_KEY, (_PASSTHROUGH_KEY, {}))
    if data and _is_switched_off(data):
        message = "ignored, because hostSession.asn is 0"
        warning = _file_problem(message, context.document, (key,))
        problems.append(replace(warning, severity=Severity.WARNING))
    elif data:
        yield _entry(PASSTHROUGH, data, (key,), 0, context)
    key, l3vpns = sections.get(_L3VPN_KEY, (_L3VPN_KEY, []))
    if l3vpns:
        message = "L3VPNs are not supported yet in this version"
        problem = _file_problem(message, context.document, (key,))
        problems.append(replace(problem, reason=Reason.VALIDATION_FAILED, in_force="the rest of the file is in force"))


def _is_switched_off(data: Mapping[str, Any]) -> bool:
    """Whether the passthrough is there but has AS 0, which in upstream's format means that there is none."""
    session = data.get("hostSession")
    return isinstance(session, dict) and session.get("asn") == 0


def _entry(section: ListSection, data: Any, path: FieldPath, index: int, context: _Context) -> Entry:
    kind = section.kind
    # Before validation, which corrects keys in place: the families are those in the original.
    unusable = Unusable(passthrough_families(data) if kind is Kind.L3PASSTHROUGH else frozenset())
    former = rewrites(kind, data, context.l3vnis)
    if former:
        data = rewritten(data, former)
    refused = tuple(_later_features(kind, data, path, context))
    model, problems = validate(section.entry, data, context.document, path)
    problems = (*(_former_spelling(one.below(path), context) for one in former), *refused, *problems)
    suffix, named = entry_suffix(kind, data, index)
    name = resource_name(context.node_name, suffix)
    spec: Any = unusable if model is None else spec_of(model, section.spec)
    if model is not None and "node_selector" in model.model_fields_set:
        place = (*path, "nodeSelector")
        warning = _file_problem(
            "has no effect in a file, which always applies to its own node", context.document, place
        )
        problems = (*problems, replace(warning, severity=Severity.WARNING, reason=Reason.VALIDATION_FAILED))
    if isinstance(spec, Model):
        problems = (*problems, *_doubtful_networks(spec, path, context))
        spec, found = _with_passwords(spec, unusable, path, context)
        problems = (*problems, *found)
    origin, places = context.document.origin(path), partial(_place_of, context.document, path)
    resource = Resource(kind, context.namespace, name, origin, spec, suffix, places)
    return Entry(resource, tuple(_attributed(problem, resource.id) for problem in problems), named)


def _place_of(document: Document, path: FieldPath, rule_field: str) -> Origin:
    return document.place((*path, *parse_path(rule_field)))


def _later_features(kind: Kind, data: Any, path: FieldPath, context: _Context) -> Iterator[Problem]:
    """Take out of an underlay what a later version will know, and yield an error for each.

    An underlay that is refused as a whole would keep all of the node's networks as they are, or without any at a start.
    """
    if kind is not Kind.UNDERLAY or not isinstance(data, dict):
        return
    for key in [key for key in data if case_match(key, LATER_FEATURES)]:
        if data.pop(key) is not None:
            problem = _file_problem(NOT_YET, context.document, (*path, key))
            yield replace(problem, reason=Reason.VALIDATION_FAILED, in_force="the rest of the Underlay is in force")


def _former_spelling(one: Rewrite, context: _Context) -> Problem:
    message = f"a former spelling: write {written(one)}, or let openperouter migrate do it"
    problem = _file_problem(message, context.document, one.place)
    return replace(problem, severity=Severity.WARNING, reason=Reason.VALIDATION_FAILED)


def _doubtful_networks(spec: Model, path: FieldPath, context: _Context) -> Iterator[Problem]:
    """Yield a warning for each network of which the host bits are ignored, and each gateway that no host can have.

    No errors: the API server accepts the same values in objects, and a file must not be judged otherwise.
    """
    found = ((place, _ignored_bits(text)) for place, text in _networks(spec))
    gateways = enumerate(spec.gateway_ips if isinstance(spec, L2Vni) else ())
    addresses = ((("gatewayIPs", index), _is_network_address(text)) for index, text in gateways)
    for place, message in (*found, *addresses):
        if message:
            origin = context.document.origin((*path, *place))
            field_name = format_path((*path, *place))
            yield Problem(message=message, origin=origin, field=field_name, severity=Severity.WARNING)


def _networks(spec: Model) -> Iterator[tuple[FieldPath, str]]:
    """Yield the networks of a resource that stand for all of their addresses, with their places."""
    if isinstance(spec, Underlay):
        yield ("routerIDCIDR",), spec.router_id_cidr
        for index, pool in enumerate(spec.tunnel_endpoint.cidrs if spec.tunnel_endpoint else ()):
            yield ("tunnelEndpoint", "cidrs", index), pool
    for place, session in sessions_of(spec):
        if isinstance(session, HostSession):
            if session.local_cidr is not None:
                for pool in session.pools:
                    yield (*place, "localCIDR", f"ipv{parse_cidr(pool).version}"), pool
            for index, pool in enumerate(session.local_cidrs or ()):
                yield (*place, "localCIDRs", index), pool
            for index, prefix in enumerate(session.allowed_prefixes or ()):
                yield (*place, "allowedPrefixes", index), prefix
        elif session.listen_range is not None:
            yield (*place, "listenRange"), session.listen_range


def _ignored_bits(text: str) -> str:
    interface = parse_cidr(text)
    network = interface.network
    return "" if interface.ip == network.network_address else f"host bits are ignored: read as {network}"


def _is_network_address(text: str) -> str:
    interface = parse_cidr(text)
    network = interface.network
    # RFC 3021 and RFC 6164: both addresses of a network of two are hosts.
    if interface.ip != network.network_address or network.num_addresses <= 2:
        return ""
    example = f"{network.network_address + 1}/{network.prefixlen}"
    return f"{interface.ip} is the network address of {network}; use a host address such as {example}"


def _attributed(problem: Problem, resource: ResourceId) -> Problem:
    broken_underlay = resource.kind is Kind.UNDERLAY and problem.severity is Severity.ERROR and not problem.in_force
    return replace(problem, resource=resource, in_force=RUNNING_KEPT if broken_underlay else problem.in_force)


def _with_passwords(
    spec: Model, unusable: Unusable, path: FieldPath, context: _Context
) -> tuple[Model | Unusable, list[Problem]]:
    """Replace references to password files by the passwords: by the last good one when a file cannot be used.

    ``unusable`` stands for a resource with a password that is not known at all.
    """
    problems: list[Problem] = []
    passwords: dict[Place, Secret] = {}
    lacking = False
    for session_place, session in sessions_of(spec):
        place = (*path, *session_place, "passwordSecret")
        if session.password is not None and (warning := open_to_others(context.path, context.mode)):
            problems.append(_secret_problem(warning, Severity.WARNING, (*place[:-1], "password"), context))
        if session.password_secret is None:
            continue
        try:
            passwords[session_place], warning = context.passwords.read(
                context.path.parent, session.password_secret.file_name
            )
        except SecretUnusableError as error:
            problem = _secret_problem(str(error), Severity.ERROR, place, context)
            kept = context.passwords.kept(context.path.parent, session.password_secret.file_name)
            if kept is None:
                lacking = True
            else:
                passwords[session_place] = kept
                problem = replace(problem, in_force=_LAST_GOOD_KEPT)
            problems.append(problem)
            continue
        if warning:
            problems.append(_secret_problem(warning, Severity.WARNING, place, context))
    return (unusable if lacking else with_passwords(spec, passwords)), problems


def _secret_problem(message: str, severity: Severity, place: FieldPath, context: _Context) -> Problem:
    return Problem(message=message, origin=context.document.origin(place), field=format_path(place), severity=severity)
