"""Applies a configuration to FRR and verifies it by what FRR shows afterwards.

A desired state and its rendered text come in; an :class:`FrrOutcome` goes out. The steps: wait until FRR is ready;
check each new raw snippet by a dry run, so that a bad one is left out alone; read the running configuration and stop if
it is the intended one; check the whole text by a dry run; remove what must go, in order; add what is missing; read
until FRR shows the intent. A snippet whose lines FRR does not show, and that does not explain what it shows instead, is
left out in a second attempt. Only a verified text becomes the file that FRR boots with, so that an FRR restarted
without the daemon starts with a configuration that has worked.
"""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from config.desired import DesiredRawFRR, DesiredState, ResourceFailure
from config.outcomes import FrrOutcome
from config.problems import Reason
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic
from supervisor.runtime.faults import DependencyFault

from .diff.commands import additions, corrections, passes, residue
from .diff.difference import Difference, Entry, Intent, blamed, difference, explained, intended, parse, rewritten, show
from .driver import FrrDriver, daemons_for
from .render.render import RenderedConfig

#: FRR's daemons apply what they are sent a moment later, through mgmtd, and only the result shows that they have.
READ_ATTEMPTS: Final = 6
READ_PAUSE_SECONDS: Final = 0.5

#: Longest quotation of FRR in a message, in characters.
_COMPLAINT_LENGTH: Final = 300

log = get_logger("frr")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A running configuration and its difference from an intent."""

    text: str = field(repr=False)
    intent: Intent
    difference: Difference

    @classmethod
    def compare(cls, text: str, intent: Intent) -> _Seen:
        return cls(text, intent, difference(intent, parse(text)))


class Applier:
    """Applies configurations, one at a time.

    Remembers why raw snippets were refused, so that they are not tried again, and the last difference that snippets
    explain.
    """

    def __init__(self, driver: FrrDriver, conf: Path, *, owner: str = "frr") -> None:
        self._driver = driver
        self._conf = conf
        self._owner = owner
        self._one_at_a_time = trio.Lock()
        self._passing = False
        self._refusals: dict[str, str] = {}
        self._tolerated: tuple[str, Difference] | None = None

    async def apply(self, desired: DesiredState, rendered: RenderedConfig, *, passing: bool = False) -> FrrOutcome:
        """Make FRR run a configuration. That FRR is unreachable or too slow is an outcome, not an exception.

        A ``passing`` one is a step on the way to another: FRR never boots with it, and what it leaves behind stays.
        """
        async with self._one_at_a_time:
            self._passing = passing
            try:
                return await self._apply(desired, rendered)
            except DependencyFault as fault:
                return FrrOutcome(desired, applied=False, error=str(fault))
            except OSError as error:
                reason = error.strerror or str(error)
                return FrrOutcome(desired, applied=False, error=f"cannot write FRR's configuration: {reason}")

    async def _apply(self, desired: DesiredState, rendered: RenderedConfig) -> FrrOutcome:
        await self._driver.wait_ready(daemons_for(rendered.text))
        await self._check_snippets(rendered)
        wanted = self._acceptable(rendered)
        seen = _Seen.compare(await self._driver.running(), intended(wanted))
        if self._good_already(seen, wanted):
            changed = self._promote(wanted.text)
            await self._clear_residue(seen)
            return FrrOutcome(desired, True, changed, failures=self._failures(rendered, seen))
        refusal = await self._driver.refusal(wanted.text)
        if refusal:
            return FrrOutcome(desired, applied=False, error=f"FRR refuses the configuration: {_short(refusal)}")
        log.info("changing FRR's configuration", generation=desired.generation, difference=seen.difference.summary())
        complaints, seen = await self._change(seen, wanted)
        if not explained(seen.difference, seen.intent) and blamed(seen.difference, seen.intent):
            self._refuse_blamed(seen, wanted, complaints)
            wanted = self._acceptable(rendered)
            complaints, seen = await self._change(_Seen.compare(seen.text, intended(wanted)), wanted)
        if not explained(seen.difference, seen.intent):
            shown = f"{_short(seen.difference.summary())}{_quoted(complaints)}"
            error = f"FRR's running configuration differs from the desired one: {shown}"
            return FrrOutcome(desired, False, True, error, self._failures(rendered, seen))
        self._tolerated = (wanted.text, seen.difference)
        self._promote(wanted.text)
        await self._clear_residue(seen)
        return FrrOutcome(desired, True, True, failures=self._failures(rendered, seen, complaints))

    async def _clear_residue(self, seen: _Seen) -> None:
        """Remove the empty VRF stanzas that FRR left behind, once their device is gone.

        Before that it does not only refuse: mgmtd 10.3 fails an assertion when two daemons refuse a commit.
        """
        stale = set() if self._passing else set(residue(seen.text, seen.intent))
        gone = stale & await self._driver.inactive_vrfs() if stale else stale
        if gone:
            await self._driver.send("".join(f"no vrf {vrf}\n" for vrf in sorted(gone)))

    async def _check_snippets(self, rendered: RenderedConfig) -> None:
        """Check each new snippet by a dry run of its own; forget the snippets that are gone."""
        refusals = {}
        for snippet in rendered.snippets:
            known = self._refusals.get(snippet.text)
            if known is None:
                known = await self._driver.refusal(snippet.text)
            refusals[snippet.text] = known
        self._refusals = refusals

    def _acceptable(self, rendered: RenderedConfig) -> RenderedConfig:
        return rendered.without({bad.source.resource for bad in rendered.snippets if self._refusals.get(bad.text)})

    def _refuse_blamed(self, seen: _Seen, wanted: RenderedConfig, complaints: str) -> None:
        missing = blamed(seen.difference, seen.intent)
        for snippet in wanted.snippets:
            if snippet.source in missing:
                reason = f"FRR does not run {_listed(missing[snippet.source])}{_quoted(complaints)}"
                self._refusals[snippet.text] = reason

    def _failures(self, rendered: RenderedConfig, seen: _Seen, complaints: str = "") -> tuple[ResourceFailure, ...]:
        """Return the snippets that are left out, and those of which FRR does not show all lines in their own words."""
        refused = [
            _failure(snippet.source, f"ignored, because FRR refuses it: {_short(self._refusals[snippet.text])}")
            for snippet in rendered.snippets
            if self._refusals.get(snippet.text)
        ]
        shown = f", it shows {_listed(seen.difference.extra)}" if seen.difference.extra else ""
        lost = [
            _failure(source, f"FRR does not show {_listed(entries)}{shown}{_quoted(complaints)}")
            for source, entries in blamed(seen.difference, seen.intent).items()
        ]
        return (*refused, *lost)

    def _good_already(self, seen: _Seen, wanted: RenderedConfig) -> bool:
        if self._tolerated == (wanted.text, seen.difference):
            return True
        if not seen.difference:
            return not seen.intent.negations or self._on_disk() == wanted.text
        # An earlier process verified the same text, and FRR shows all of it, some in other words.
        return rewritten(seen.difference, seen.intent) and self._on_disk() == wanted.text

    async def _change(self, seen: _Seen, wanted: RenderedConfig) -> tuple[str, _Seen]:
        """Remove what must go, add what is missing, read; until FRR shows the intent, at most three times.

        The first round replaces lines in place; the others remove the old ones first. The last resort is FRR's reload
        program, which is slow but has some special cases that we do not.
        """
        complaints = ""
        for thorough in (False, True, True):
            seen = await self._remove(seen, thorough=thorough)
            complaints = await self._add(seen, wanted, first=not thorough)
            seen = await self._settled(seen.intent)
            if explained(seen.difference, seen.intent):
                return complaints, seen
        complaints = await self._driver.reload(wanted.text)
        return complaints, await self._settled(seen.intent)

    async def _remove(self, seen: _Seen, *, thorough: bool) -> _Seen:
        """Remove what has to go; FRR complains about lines that went with others, which is no failure."""
        for step in passes(seen.difference, parse(seen.text)):
            await self._driver.send(step.commands)
            text = await self._read_until(lambda text, gone=step.gone: not gone & parse(text))  # type: ignore[misc]
            seen = _Seen.compare(text, seen.intent)
        commands = corrections(seen.difference, thorough=thorough)
        if commands:
            await self._driver.send(commands)
            seen = _Seen.compare(await self._driver.running(), seen.intent)
        return seen

    async def _add(self, seen: _Seen, wanted: RenderedConfig, *, first: bool) -> str:
        """Send what FRR does not show, and the first time the snippets' negations, which it may never show."""
        pending = seen.intent.negations if first else frozenset()
        commands = additions(wanted.text, pending.union(seen.difference.missing))
        return await self._driver.send(commands) if commands else ""

    async def _settled(self, intent: Intent) -> _Seen:
        return _Seen.compare(await self._read_until(lambda text: not difference(intent, parse(text))), intent)

    async def _read_until(self, good: Callable[[str], bool]) -> str:
        """Return the running configuration once it is good, or the last one of a few readings."""
        text = await self._driver.running()
        for _ in range(READ_ATTEMPTS - 1):
            if good(text):
                break
            await trio.sleep(READ_PAUSE_SECONDS)
            text = await self._driver.running()
        return text

    def _on_disk(self) -> str | None:
        try:
            return self._conf.read_text()
        except (OSError, UnicodeDecodeError):
            return None

    def _promote(self, text: str) -> bool:
        """Make a verified text the one that FRR boots with; return whether it was different."""
        if self._passing or self._on_disk() == text:
            return False
        remove_stale(self._conf)
        write_atomic(self._conf, text, mode=0o640, owner=_ids(self._owner))
        return True


def _ids(user: str) -> tuple[int, int] | None:
    """Return a user's and its group's IDs, or None where there is no such user, as on a developer's machine."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def _failure(source: DesiredRawFRR, message: str) -> ResourceFailure:
    return ResourceFailure(source.resource, Reason.FRR_CONFIGURATION_FAILED, message, source.origin)


def _listed(entries: Iterable[Entry]) -> str:
    return _short("; ".join(f"{show(entry)!r}" for entry in entries))


def _quoted(complaints: str) -> str:
    return f"; FRR's answer: {_short(complaints)}" if complaints else ""


def _short(text: str) -> str:
    line = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    return line if len(line) <= _COMPLAINT_LENGTH else f"{line[: _COMPLAINT_LENGTH - 1]}…"
