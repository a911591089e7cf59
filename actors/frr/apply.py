"""Applies a configuration to FRR and verifies it by what FRR shows afterwards.

A desired state and its rendered text come in; an :class:`FrrOutcome` goes out. The steps: wait until FRR is ready; read
the running configuration and stop if it is the intended one; check what is new in form by a dry run
(:mod:`.checked_forms`); remove what must go, in order; add what is missing; read until FRR shows the intent. A raw
snippet whose lines FRR does not show is left out in a second attempt. What FRR does not take fails its resource
(:mod:`.refusals`) and the rest is in force. Only a verified text becomes the file that FRR boots with, so that an FRR
restarted without the daemon starts with what has worked.
"""

from __future__ import annotations

import grp
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from config.desired import DesiredState
from config.outcomes import FrrOutcome
from supervisor.logs.logger import get_logger
from supervisor.process.atomic_file import remove_stale, write_atomic
from supervisor.runtime.faults import DependencyFault

from .checked_forms import CheckedForms
from .diff.commands import additions, corrections, passes, residue
from .diff.difference import KNOWN_BLOCKS, Difference, Entry, Intent, difference, intended, lacking, parse
from .driver import FrrDriver, daemons_for
from .mgmtd_recovery import LOCKED
from .refusals import Attempt, Refusals, RunningConfiguration, quotation, refused, vital
from .render.render import RenderedConfig

#: FRR's daemons apply what they are sent a moment later, through mgmtd, and only the result shows that they have: the
#: pauses between readings, in seconds. Most need none; a tenant may be interrupted until the last.
READ_PAUSES: Final = (0.05, 0.1, 0.25, 0.5, 0.6, 1.0)

log = get_logger("frr")


class SupersededError(Exception):
    """A newer state is waiting, and FRR does not run this one yet."""


class Applier:
    """Applies configurations, one at a time. Remembers what FRR does not take (:mod:`.refusals`)."""

    def __init__(self, driver: FrrDriver, conf: Path, *, group: str = "frr") -> None:
        self._driver = driver
        self._conf = conf
        self._group = group
        self._one_at_a_time = trio.Lock()
        self._superseded: Callable[[], bool] = lambda: False
        self._then: RenderedConfig | None = None
        #: Whether FRR runs what it has booted with or an earlier process has left.
        self._untouched = True
        #: The text whose negations FRR was sent last; None: its boot file is, and empty: unknown.
        self._sent: str | None = None
        #: Whether mgmtd was locked when the negations were sent, which FRR does not show.
        self._unsure = False
        #: Whether an answer in the attempt's last round was that mgmtd is locked.
        self._locked = False
        self._intended: tuple[RenderedConfig, Intent] | None = None
        self._compared: tuple[str, Intent, frozenset[Entry], Difference] | None = None
        self._forms = CheckedForms()
        self.refusals = Refusals()

    def forget(self, *, restarted: bool = False) -> None:
        """Check and retry everything: FRR was ``restarted`` and may be another version, or an operator requests it."""
        self._untouched |= restarted
        self._sent = None
        self._forms.forget()
        self.refusals.forget(restarted=restarted)

    async def apply(
        self,
        desired: DesiredState,
        rendered: RenderedConfig,
        superseded: Callable[[], bool] = lambda: False,
        *,
        then: RenderedConfig | None = None,
    ) -> FrrOutcome:
        """Make FRR run a configuration. That FRR is unreachable or too slow is an outcome, not an exception.

        One with a ``then`` is a step on the way to that other one, for which something is interrupted: FRR never boots
        with it, what it leaves behind stays, and what follows is checked with it.
        Raises :class:`SupersededError` if ``superseded`` becomes true before FRR runs it. That is looked at between two
        commands only: a session that ends during a commit breaks mgmtd.
        """
        async with self._one_at_a_time:
            self._superseded, self._then = superseded, then
            KNOWN_BLOCKS.turn()
            try:
                return await self._apply(desired, rendered)
            except DependencyFault as fault:
                return FrrOutcome(desired, applied=False, error=str(fault))
            except OSError as error:
                reason = error.strerror or str(error)
                return FrrOutcome(desired, applied=False, error=f"cannot write FRR's configuration: {reason}")

    async def is_unchanged(self, rendered: RenderedConfig) -> bool:
        """Whether FRR and its file are as :meth:`apply` has left them, so that it would find nothing to do.

        ``rendered`` is what it applied last, and nothing is due for another attempt. Only reads; DependencyFault.
        """
        async with self._one_at_a_time:
            await self._driver.wait_ready(daemons_for(rendered.text))
            text = await self._driver.running()
            if self._compared is None or self._compared[0] != text:
                return False
            wanted = self.refusals.acceptable(rendered)
            seen = self._seen(text, self._intent(wanted))
            on_disk = self._on_disk()
            boots = self._then is None and self.refusals.certain(rendered, seen)
            if self._has_work(seen, wanted, on_disk) or (boots and on_disk != wanted.text):
                return False
            return not await self._gone(seen)

    def shown_vnis(self) -> frozenset[int]:
        """Return the L3VNIs that FRR showed when it was read last."""
        lines = self._compared[2] if self._compared else frozenset[Entry]()
        vnis = (text for path, text in lines if text.startswith("vni ") and path and path[0].startswith("vrf "))
        return frozenset(int(text.split()[1]) for text in vnis)

    async def _apply(self, desired: DesiredState, rendered: RenderedConfig) -> FrrOutcome:
        await self._driver.wait_ready(daemons_for(rendered.text))
        self.refusals.begin(rendered)
        wanted = self.refusals.acceptable(rendered)
        seen = self._seen(await self._driver.running(), self._intent(wanted))
        on_disk = self._on_disk()
        self.refusals.review(seen, verified=self._untouched and on_disk == wanted.text)
        self._untouched = False
        seen = replace(seen, pending=self.refusals.pending(seen.difference))
        changed = self._has_work(seen, wanted, on_disk)
        if changed:
            # FRR has taken the sections of which nothing is missing.
            sent = self.refusals.part(rendered, seen.intent.negations.union(seen.pending.missing), seen.intent)
            await self._check_ahead(rendered, sent)
            for part in sent.parts():
                if error := await self._check(part):
                    return FrrOutcome(desired, False, error=error)
            if (left := self.refusals.acceptable(rendered)) != wanted:
                wanted = left
                seen = self._seen(seen.text, self._intent(wanted))
            log.info("changing FRR's configuration", generation=desired.generation, difference=seen.pending.summary())
            self._sent, self._unsure = "", False
            wanted, seen = await self._attempt(rendered, wanted, seen)
        self._sent = "" if self._unsure else wanted.text
        failures = self.refusals.failures(rendered, seen)
        wrong = vital(seen)
        if wrong:
            error = f"{seen.frr}'s running configuration differs from the desired one: {quotation(wrong.summary())}"
            return FrrOutcome(desired, False, changed, error, failures)
        if self.refusals.certain(rendered, seen):
            changed |= await self._promote(wanted.text)
        await self._clear_residue(seen)
        return FrrOutcome(desired, True, changed, self.refusals.unattributed(rendered, seen), failures)

    def _has_work(self, seen: RunningConfiguration, wanted: RenderedConfig, on_disk: str | None) -> bool:
        """Whether there is something to send: a difference, or negations, which FRR may have without showing them."""
        sent = on_disk if self._sent is None else self._sent
        return bool(seen.pending) or (bool(seen.intent.negations) and sent != wanted.text)

    async def _check_ahead(self, rendered: RenderedConfig, sent: RenderedConfig) -> None:
        """Check what follows together with what is sent, if anything follows: its dry run would interrupt for longer.

        Of what is refused here, :meth:`_check` finds out which line it is.
        """
        if self._then is None:
            return
        present = {section.text for section in rendered.sections}
        later = (one for one in self._then.sections if one.text not in present)
        sections = {one.text: one for one in self._forms.unchecked((*sent.sections, *later)) if not one.raw}
        ahead = RenderedConfig(tuple(sections.values()))
        if ahead.text and not await self._driver.refusal(ahead.text):
            self._forms.learn(ahead.sections)

    async def _check(self, part: RenderedConfig) -> str:
        """Leave out what a dry run refuses; return why this cannot be done without, or nothing."""
        part = RenderedConfig(self._forms.unchecked(part.sections))
        while (left := self.refusals.acceptable(part)).text and (refusal := await self._driver.refusal(left.text)):
            if not self.refusals.cut(part, refusal):
                return refused(left.text, refusal)
        self._forms.learn(left.sections)
        return ""

    async def _attempt(
        self, rendered: RenderedConfig, wanted: RenderedConfig, seen: RunningConfiguration
    ) -> tuple[RenderedConfig, RunningConfiguration]:
        """Bring about what is wanted, then without snippets that do not work; hold what remains different."""
        done = await self._change(seen, wanted)
        if self.refusals.hold_snippets(done):
            wanted = self.refusals.acceptable(rendered)
            done = await self._change(self._seen(done.seen.text, self._intent(wanted)), wanted)
        self.refusals.hold_lines(done)
        return wanted, done.seen

    def _intent(self, wanted: RenderedConfig) -> Intent:
        """Return what FRR should show; while that stays the same, the same object."""
        if self._intended is None or self._intended[0] != wanted:
            self._intended = wanted, intended(wanted)
        return self._intended[1]

    def _seen(self, text: str, intent: Intent) -> RunningConfiguration:
        known = self._compared
        if known is None or known[1] is not intent or known[0] != text:
            lines = parse(text)
            known = self._compared = text, intent, lines, difference(intent, lines, lacking(text))
        _, _, lines, found = known
        return RunningConfiguration(text, lines, intent, found, self.refusals.pending(found))

    async def _clear_residue(self, seen: RunningConfiguration) -> None:
        """Remove the empty VRF stanzas that FRR left behind."""
        if gone := await self._gone(seen):
            await self._driver.send("".join(f"no vrf {vrf}\n" for vrf in sorted(gone)))

    async def _gone(self, seen: RunningConfiguration) -> set[str]:
        """Return the empty VRF stanzas that FRR left behind and whose device is gone.

        Before that it does not only refuse: mgmtd 10.3 fails an assertion when two daemons refuse a commit.
        """
        stale = set() if self._then else set(residue(seen.text, seen.difference, seen.intent))
        return stale & await self._driver.inactive_vrfs() if stale else stale

    async def _change(self, seen: RunningConfiguration, wanted: RenderedConfig) -> Attempt:
        """Remove what must go, add what is missing, read; until FRR shows the intent, at most three times.

        The first round replaces lines in place; the others remove the old ones first. The last round sends the lines of
        each section apart: mgmtd commits a file as a whole, and refuses it as a whole for one line.
        """
        answers: dict[Entry, str] = {}
        stubborn = frozenset(seen.pending.extra)
        for thorough, apart in ((False, False), (True, False), (True, True)):
            self._locked = False
            seen = await self._remove(seen, thorough=thorough)
            stubborn &= frozenset(seen.pending.extra)
            answers = await self._add(seen, wanted, first=not thorough, apart=apart)
            self._unsure |= self._locked and not thorough and bool(seen.intent.negations)
            seen = await self._settled(seen.intent)
            stubborn &= frozenset(seen.pending.extra)
            if not seen.pending:
                break
            self._safe_point()
        return Attempt(seen, answers, stubborn, self._locked)

    async def _send(self, commands: str) -> str:
        answer = await self._driver.send(commands)
        self._locked |= LOCKED in answer
        return answer

    def _safe_point(self) -> None:
        if self._superseded():
            raise SupersededError

    async def _remove(self, seen: RunningConfiguration, *, thorough: bool) -> RunningConfiguration:
        """Remove what has to go; FRR complains about lines that went with others, which is not a failure."""
        for step in passes(seen.pending, seen.lines):
            await self._send(step.commands)
            text = await self._read_until(lambda text, gone=step.gone: not gone & parse(text))  # type: ignore[misc]
            seen = self._seen(text, seen.intent)
        commands = corrections(seen.pending, thorough=thorough)
        if commands:
            await self._send(commands)
            seen = self._seen(await self._driver.running(), seen.intent)
        return seen

    async def _add(
        self, seen: RunningConfiguration, wanted: RenderedConfig, *, first: bool, apart: bool
    ) -> dict[Entry, str]:
        """Send what FRR does not show, and the first time the snippets' negations, which it may never show.

        Each snippet is sent alone: where FRR refuses what opens a context, it reads no further. Returns FRR's answer
        for each line.
        """
        files: dict[str, set[Entry]] = {}
        for entry in (seen.intent.negations if first else frozenset()).union(seen.pending.missing):
            section = seen.intent.sections[entry]
            files.setdefault(section.text if apart or section.raw else "", set()).add(entry)
        answers: dict[Entry, str] = {}
        for text in dict.fromkeys(["", *(section.text for section in wanted.sections)]):
            lines = files.get(text)
            if lines:
                part = self.refusals.part(wanted, lines, seen.intent)
                commands = additions(part.text, lines, seen.intent.sections)
                answers |= dict.fromkeys(lines, await self._send(commands))
        return answers

    async def _settled(self, intent: Intent) -> RunningConfiguration:
        seen: list[RunningConfiguration] = []

        def good(text: str) -> bool:
            seen[:] = [self._seen(text, intent)]
            return not seen[0].pending

        text = await self._read_until(good)
        return seen[0] if seen and seen[0].text == text else self._seen(text, intent)

    async def _read_until(self, good: Callable[[str], bool]) -> str:
        """Return the running configuration once it is good, or the last one of a few readings."""
        text = await self._driver.running()
        for pause in READ_PAUSES:
            if good(text):
                break
            self._safe_point()
            await trio.sleep(pause)
            text = await self._driver.running()
        return text

    def _on_disk(self) -> str | None:
        try:
            return self._conf.read_text()
        except (OSError, UnicodeDecodeError):
            return None

    async def _promote(self, text: str) -> bool:
        """Make a verified text the one that FRR boots with; return whether it was different."""
        if self._then or self._on_disk() == text:
            return False
        # On a busy disk this takes seconds, in which the other actors must not wait.
        await trio.to_thread.run_sync(self._write, text)
        return True

    def _write(self, text: str) -> None:
        remove_stale(self._conf)
        write_atomic(self._conf, text, mode=0o640, reader=_gid(self._group))


def _gid(group: str) -> int | None:
    """Return FRR's group, or None where there is no such group, as on a developer's machine.

    The file stays root's: FRR's own user must not write what root's vtysh reads at FRR's start.
    """
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return None
