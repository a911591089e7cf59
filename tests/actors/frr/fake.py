"""An FRR that lives in memory: it keeps lines in contexts, as far as tests need it, and can be told to misbehave."""

from __future__ import annotations

import trio

from actors.frr.diff.difference import Entry
from actors.frr.diff.grammar import scan
from supervisor.runtime.faults import DependencyFault


class FakeFrr:
    """Runs whatever it is sent. ``rewrites`` maps lines to how it shows them."""

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {((), "frr version fake"): None}
        self.rewrites: dict[str, str] = {}
        self.dry_refusals: set[str] = set()
        self.away: str = ""
        self.hangs = False
        self.deaf = False
        self.calls: list[str] = []
        self.sent: list[str] = []
        self.inactive: frozenset[str] = frozenset()
        self.needed: frozenset[str] = frozenset()
        self.writers = 0
        self.most_writers = 0

    @property
    def text(self) -> str:
        """The running configuration, each line wrapped in its contexts of its own."""
        return "".join("\n".join([*path, text, *["exit"] * len(path), ""]) for path, text in self._entries)

    @text.setter
    def text(self, text: str) -> None:
        self._entries.clear()
        self.edit(text)

    def edit(self, commands: str) -> None:
        """Carry out configuration commands, as an operator would give them."""
        for line in scan(commands):
            entry = (line.path[:-1] if line.opens else line.path, line.text)
            if line.text.startswith("no "):
                self._forget((entry[0], line.text.removeprefix("no ")))
            shown = self.rewrites.get(line.text, line.text)
            if not line.text.startswith("no ") or line.text.startswith("no bgp"):
                self._entries[entry[0], shown] = None

    def _forget(self, entry: Entry) -> None:
        path, text = entry
        inside = (*path, text)
        for other in [other for other in self._entries if other == entry or other[0][: len(inside)] == inside]:
            del self._entries[other]

    async def wake(self, needed: frozenset[str]) -> None:
        self.calls.append("wake")
        self.needed = needed
        if self.hangs:
            await trio.sleep_forever()
        if self.away:
            raise DependencyFault(self.away)

    async def running(self) -> str:
        self.calls.append("running")
        await trio.lowlevel.checkpoint()
        return self.text

    async def inactive_vrfs(self) -> frozenset[str]:
        await trio.lowlevel.checkpoint()
        return self.inactive

    async def refusal(self, text: str) -> str:
        self.calls.append("refusal")
        await trio.lowlevel.checkpoint()
        return next((f"line 1: % Unknown command: {word}" for word in self.dry_refusals if word in text), "")

    async def send(self, commands: str) -> str:
        self.calls.append("send")
        self.sent.append(commands)
        return await self._write(commands)

    async def reload(self, text: str) -> str:
        self.calls.append("reload")
        return await self._write(text)

    @property
    def writes(self) -> int:
        return sum(call in ("send", "reload") for call in self.calls)

    async def _write(self, text: str) -> str:
        self.writers += 1
        self.most_writers = max(self.most_writers, self.writers)
        await trio.sleep(0.1)
        if not self.deaf:
            self.edit(text)
        self.writers -= 1
        return "line 9: it complained" if self.rewrites else ""
