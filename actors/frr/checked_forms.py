"""Which sections need no dry run, because one of the same form has passed it.

A dry run is a vtysh process, which costs more than a network's lines (docs/performance.md). It checks FRR's grammar,
to which sections mean the same that differ only in an address or network of the same kind, in a number with as many
digits, or in the VRF's name. What is not checked then is whether FRR takes a number of that length; earlier layers have
made sure of that, and a line that FRR refuses all the same fails its resource after it was sent. A snippet, whose text
is a user's, is always checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from config.desired import DesiredL3VNI

from .render.render import Section
from .render.template_context import vrf_policy

#: More are not remembered: a neighbour's password is a part of its section's form.
MOST_FORMS: Final = 1000

#: A word that is a value: an address, perhaps with a prefix length or (a route distinguisher) a number; or numbers.
_VALUE: Final = re.compile(
    r"(?P<address>\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]{0,4}:[0-9a-f]{0,4}:[0-9a-f:]*)(?P<more>[/:]\d+)?"
    r"|\d+(?::\d+)?"
)
_DIGIT: Final = re.compile(r"\d")


class CheckedForms:
    """The forms that the dry run of one FRR has taken."""

    def __init__(self) -> None:
        self._forms: set[str] = set()

    def forget(self) -> None:
        """Check everything again: FRR was restarted and may be another version, or an operator requests it."""
        self._forms.clear()

    def unchecked(self, sections: Iterable[Section]) -> tuple[Section, ...]:
        """Return the sections that need a dry run."""
        return tuple(one for one in sections if one.raw or form(one) not in self._forms)

    def learn(self, sections: Iterable[Section]) -> None:
        """Remember sections that a dry run has taken."""
        if len(self._forms) >= MOST_FORMS:
            self.forget()
        self._forms.update(form(one) for one in sections if not one.raw)


def form(section: Section) -> str:
    """Return a section's text with its values replaced by their kinds."""
    names = {}
    if isinstance(section.source, DesiredL3VNI):
        names = {section.source.vrf: "<vrf>", vrf_policy(section.source.vrf): "<policy>"}
    lines = ([names.get(word) or _kind(word) for word in line.split(" ")] for line in section.text.split("\n"))
    return "\n".join(map(" ".join, lines))


def _kind(word: str) -> str:
    """Return a value's kind, and any other word as it is."""
    found = _VALUE.fullmatch(word)
    if found is None:
        return word
    address, more = found["address"], found["more"] or ""
    if address is None:
        return _DIGIT.sub("0", word)
    return f"<ipv{6 if ':' in address else 4}>{'/' if more.startswith('/') else _DIGIT.sub('0', more)}"
