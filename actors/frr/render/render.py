"""Renders a desired state as FRR configuration text.

A :class:`DesiredState` comes in. :mod:`.template_context` turns it into values and leaves out FRR's defaults; one
template for each stanza prints them; users' raw snippets are appended. A :class:`RenderedConfig` goes out, in sections,
each with the resource that it comes from, so that what FRR refuses fails that resource. Pure: the same state gives the
same text.

FRR's configuration is a language of lines: a value with a line break would be a new command. So each value that a
template prints passes through :func:`token`, which lets only one printable word through, whatever earlier layers
promise. Raw snippets are the only text that is more than words. They never pass through a template, and FRR is given
the form of :mod:`config.syntax.frr_snippets`, not the user's text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from config.desired import DesiredL2VNI, DesiredL3VNI, DesiredPassthrough, DesiredRawFRR, DesiredState, DesiredUnderlay
from config.problems import ResourceId
from config.syntax.frr_secrets import redact
from config.syntax.frr_snippets import SnippetError, canonical
from supervisor.runtime.faults import ConfigFault

from . import template_bytecode
from .template_context import (
    PASSTHROUGH_POLICY,
    POLICY_DELAY,
    bfd_profiles,
    passthrough_instance,
    prefix_lists,
    underlay_instance,
    vrf_instance,
    vrf_policy,
)

#: FRR's names for our log levels. FRR runs as a system service, so its log goes to syslog and thereby to the journal.
SYSLOG_LEVELS: Final = {"debug": "debugging", "info": "informational", "warn": "warnings", "error": "errors"}


class UnsafeToken(ConfigFault):
    """A value that would not stay one word in FRR's text. The message does not contain it: it may be a secret."""


class UnsafeSnippet(ConfigFault):
    """A raw snippet that could leave configuration mode."""


#: What a section comes from: it has the identity and origin of a resource.
Source = DesiredUnderlay | DesiredL3VNI | DesiredL2VNI | DesiredPassthrough | DesiredRawFRR


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the text that starts at the top level and returns to it.

    ``source`` is the underlay for what all resources share, and None where there is no underlay.
    """

    source: Source | None
    text: str = field(repr=False)

    @property
    def raw(self) -> bool:
        """Whether a user wrote it as FRR's text."""
        return isinstance(self.source, DesiredRawFRR)


@dataclass(frozen=True, slots=True)
class RenderedConfig:
    """FRR text in sections, with secrets."""

    sections: tuple[Section, ...]

    @property
    def text(self) -> str:
        """The whole configuration with secrets: for FRR and its file only."""
        return "".join(section.text for section in self.sections)

    def parts(self) -> Iterator[RenderedConfig]:
        """Yield what is checked together: the generated sections, and each snippet, which may end FRR's reading."""
        yield RenderedConfig(tuple(section for section in self.sections if not section.raw))
        yield from (RenderedConfig((section,)) for section in self.sections if section.raw)

    @property
    def redacted(self) -> str:
        """The whole configuration without secrets, for display."""
        return redact(self.text)


def render(
    desired: DesiredState, *, hostname: str, listen_limit: int = 65535, withdrawn: Collection[int] = ()
) -> RenderedConfig:
    """Return the configuration that carries out a desired state; without an underlay only the header and raw snippets.

    ``listen_limit`` bounds dynamic neighbours where a listen range exists; the VNIs of ``withdrawn`` are left out of
    their VRFs, whose BGP instances stay. Raises
    :class:`UnsafeToken` for a value that is not one printable word, :class:`UnsafeSnippet`.
    """
    return Renderer().render(desired, hostname=hostname, listen_limit=listen_limit, withdrawn=withdrawn)


class Renderer:
    """Renders as :func:`render` does, and keeps the L3VNIs' sections: only those of changed ones are made again."""

    def __init__(self) -> None:
        self._underlay: DesiredUnderlay | None = None
        self._known: dict[ResourceId, tuple[DesiredL3VNI, tuple[Section, ...]]] = {}

    def render(
        self, desired: DesiredState, *, hostname: str, listen_limit: int = 65535, withdrawn: Collection[int] = ()
    ) -> RenderedConfig:
        """Return what :func:`render` does."""
        snippets = (Section(raw, _snippet_text(raw.text)) for raw in desired.raw_frr)
        sections = self._l3vnis(desired)
        return RenderedConfig((*_stanzas(desired, hostname, listen_limit, withdrawn, sections), *snippets))

    def _l3vnis(self, desired: DesiredState) -> list[tuple[Section, ...]]:
        """Return each L3VNI's sections: its VRF's stanza, then those of its BGP instance."""
        underlay = desired.underlay
        if underlay is None:
            return []
        before = self._known if underlay == self._underlay else {}
        now: dict[ResourceId, tuple[DesiredL3VNI, tuple[Section, ...]]] = {}
        for vni in desired.l3vnis:
            known = before.get(vni.resource)
            if known is None or known[0] != vni:
                known = vni, (_fill(vni, "vrf.j2", vrf=vni.vrf, vni=vni.vni), *_instance(vni, underlay))
            now[vni.resource] = known
        self._underlay, self._known = underlay, now
        return [sections for _, sections in now.values()]


def _instance(vni: DesiredL3VNI, underlay: DesiredUnderlay) -> Iterator[Section]:
    yield from _allowed(vni, vrf_policy(vni.vrf))
    yield _fill(vni, "bgp.j2", bgp=vrf_instance(vni, underlay))


def _stanzas(
    desired: DesiredState,
    hostname: str,
    listen_limit: int,
    withdrawn: Collection[int],
    l3vnis: Sequence[tuple[Section, ...]],
) -> Iterator[Section]:
    level = SYSLOG_LEVELS.get(desired.log_level, desired.log_level)
    underlay = desired.underlay
    yield _fill(underlay, "header.j2", syslog_level=level, debug=level == "debugging", hostname=hostname)
    if underlay is not None:
        for vni, (vrf, *_) in zip(desired.l3vnis, l3vnis, strict=True):
            if vni.vni not in withdrawn:
                yield vrf
        profiles = bfd_profiles(underlay)
        if profiles:
            yield _fill(underlay, "bfd.j2", profiles=profiles)
    yield _fill(underlay, "route_map.j2", delay=POLICY_DELAY)
    if underlay is not None:
        yield _fill(underlay, "bgp.j2", bgp=underlay_instance(underlay, listen_limit))
        if desired.passthrough is not None:
            yield from _allowed(desired.passthrough, PASSTHROUGH_POLICY)
            bgp = passthrough_instance(desired.passthrough, underlay)
            yield _fill(desired.passthrough, "bgp.j2", bgp=bgp)
        for segment in desired.l2vnis:
            # FRR shows no other segments: it has the VNIs of all VXLAN devices by itself.
            if segment.rd or segment.import_rts or segment.export_rts:
                yield _fill(segment, "segment.j2", asn=underlay.asn, segment=segment)
        for _, *instance in l3vnis:
            yield from instance


def _allowed(source: DesiredPassthrough | DesiredL3VNI, policy: str) -> Iterator[Section]:
    lists = prefix_lists(source.session)
    if lists:
        yield _fill(source, "allowed.j2", lists=lists, name=policy)


def _snippet_text(text: str) -> str:
    """Return a snippet in the form that starts at and returns to the top level, so that it cannot leak into the next.

    Resolution has refused those that have no such form. Raises :class:`UnsafeSnippet`.
    """
    try:
        return f"!\n{canonical(text)}!\n"
    except SnippetError as error:
        raise UnsafeSnippet(f"a raw snippet: {error}") from None


def token(value: object) -> str:
    """Return a value's text; raise :class:`UnsafeToken` unless it is one printable word."""
    text = str(value)
    # Of all white space only the space is printable.
    if not text or not text.isprintable() or " " in text:
        raise UnsafeToken(f"a {type(value).__name__} of {len(text)} characters is not one printable word")
    return text


def _fill(source: Source | None, template: str, **values: object) -> Section:
    return Section(source, environment().get_template(template).render(**values))


@cache
def environment() -> Environment:
    """Return the templates; the build of the package compiles them all."""
    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=False,  # noqa: S701 - not HTML; every value passes through finalize instead
        undefined=StrictUndefined,
        finalize=token,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Else the template's file is looked at for each section.
        auto_reload=False,
        bytecode_cache=template_bytecode.of_program(),
    )
