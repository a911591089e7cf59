"""Raw FRR snippets: a user's text becomes one of ours that stays in configuration mode. Pure.

vtysh, which reads it, runs as root. It resolves abbreviations, looks for a command in the contexts around the open one,
and its other mode has commands that read and write any file (``quit``, then ``copy FILE running-config``). So
:func:`canonical` parses a snippet into lines with their contexts (:mod:`.frr_grammar`) and writes these again with
contexts that it closes itself, and refuses:

* what leaves configuration mode, or is a command of the other mode, abbreviated or not, in whatever context;
* what names a file, or is about access to FRR's shells rather than about routing;
* an abbreviation of what opens or closes a context, since the lines after it would be in another one;
* characters that do not print, and lines that vtysh would read as two.

That is not a sandbox: a snippet may still reconfigure all of FRR, and so redirect all of the node's traffic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .frr_grammar import CLOSERS, OPENERS, Line, Openers, Path, walk

#: Longest line in bytes: vtysh reads 4 095 at a time, and takes what follows for another line.
MAX_LINE_BYTES: Final = 4000

_MODE: Final = "leaves configuration mode or is a command outside of it"
_FILE: Final = "names a file, which raw snippets may not"
_SHELL: Final = "is about access to FRR's shells, not about routing"
_BEHIND: Final = "bypasses FRR's configuration commands"

#: The beginnings of refused commands, word by word, each of which may be abbreviated. The first group is what vtysh has
#: outside of configuration mode (``list`` there), in FRR 10.3 and other versions.
_REFUSED: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "add", "clear", "configure", "copy", "disable", "do", "echo", "enable", "end", "exit", "find", "list",
            "mtrace", "output", "ping", "quit", "reload", "restart", "show", "ssh", "start-shell", "telnet", "terminal",
            "traceroute", "watchfrr", "who", "write",
        ),
        _MODE,
    ),
    **dict.fromkeys(("dump", "match script", "netns", "rpki cache ssh", "zebra on-rib-process"), _FILE),
    **dict.fromkeys(("banner", "password", "service", "username"), _SHELL),
    **dict.fromkeys(
        ("XFRR_start_configuration", "XFRR_end_configuration", "configuration", "logmsg", "mgmt", "yang"), _BEHIND
    ),
}  # fmt: skip
_REFUSED_WORDS: Final = tuple((tuple(beginning.split()), why) for beginning, why in _REFUSED.items())

#: What may follow ``log``, in full: its other forms name a file or a terminal.
_LOG: Final = frozenset(
    {"error-category", "facility", "immediate-mode", "record-priority", "syslog", "timestamp", "unique-id"}
)

#: First words in single contexts that are abbreviations elsewhere, with the beginning of that context.
_ELSEWHERE: Final = {"enable": "link-params", "net": "router "}

#: Which closers close which contexts only; ``exit`` closes all.
_CLOSES: Final = {
    "exit-vrf": "vrf ",
    "exit-address-family": "address-family ",
    "exit-vni": "vni ",
    "exit-vrf-policy": "vrf-policy ",
    "exit-vnc": "vnc ",
    "exit-ldp-if": "interface ",
}


class SnippetError(ValueError):
    """A snippet is refused: the message has the number of its line, and of its text at most the first word."""


def canonical(text: str) -> str:
    """Return a snippet as it is given to FRR: one space per context, every context closed by ``exit``.

    The result is canonical itself. Raises :class:`SnippetError`.
    """
    numbered = list(_significant(text))
    path: Path = ()
    written: list[str] = []
    for (number, text_line), (depth, line) in zip(numbered, walk(one for _, one in numbered), strict=True):
        if line is None:
            _check_closer(number, text_line, path)
            written += _exits(len(path), depth)
            path = path[:depth]
            continue
        _check(number, line)
        written += [*_exits(len(path), len(line.context)), " " * len(line.context) + line.text]
        path = line.path
    return "".join(f"{one}\n" for one in (*written, *_exits(len(path), 0)))


def _exits(depth: int, wanted: int) -> list[str]:
    """Return the lines that close the contexts between two depths."""
    return [f"{' ' * level}exit" for level in range(depth - 1, wanted - 1, -1)]


def _significant(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are no comments, with single spaces, and their numbers."""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r").replace("\t", " ")
        if not line.isprintable():
            raise SnippetError(f"line {number} has a character that does not print")
        line = " ".join(filter(None, line.split(" ")))
        if len(line.encode()) > MAX_LINE_BYTES:
            raise SnippetError(f"line {number} is longer than {MAX_LINE_BYTES} bytes, which FRR does not read as one")
        if line and line[0] not in "!#":
            yield number, line


def _check_closer(number: int, closer: str, path: Path) -> None:
    if closer == "end":
        raise SnippetError(f"line {number}: 'end' {_MODE}; contexts are closed by 'exit'")
    if not path or not path[-1].startswith(_CLOSES.get(closer, "")):
        raise SnippetError(f"line {number}: {closer!r} closes nothing that this snippet has opened")


def _check(number: int, line: Line) -> None:
    """Raise :class:`SnippetError` for a line that is refused in whatever context it is."""
    words = tuple(line.text.split(" "))
    if words[0] == "no":
        words = words[1:]
    if not words:
        raise SnippetError(f"line {number}: 'no' needs what it negates")
    first = words[0]
    if first in _ELSEWHERE and any(one.startswith(_ELSEWHERE[first]) for one in line.context[-1:]):
        return
    if first == "log" and words[1:] and words[1] in _LOG:
        return
    if _abbreviates(words, ("log",)):
        raise SnippetError(f"line {number}: of the commands 'log', only these are accepted: {', '.join(sorted(_LOG))}")
    for beginning, why in _REFUSED_WORDS:
        if _abbreviates(words, beginning):
            raise SnippetError(f"line {number}: {_naming(first, beginning)} {why}")
    if _abbreviates(words, ("rpki", "cache")) and words[2:3] != ("tcp",):
        raise SnippetError(f"line {number}: of the commands 'rpki cache', only 'rpki cache tcp' is accepted")
    _check_abbreviations(number, words)


def _check_abbreviations(number: int, words: tuple[str, ...]) -> None:
    # RIP's networks; "route bgp 1" would be "router bgp 1".
    if words[0] == "route" and words[1:] and (words[1][0].isdigit() or ":" in words[1]):
        return
    if any(words[: len(opener)] == opener for opener in _OPENERS):
        return
    for opener in _OPENERS:
        if _abbreviates(words, opener):
            raise SnippetError(f"line {number}: write {' '.join(opener)!r} in full")
    for word in ("no", *CLOSERS):
        if word != words[0] and word.startswith(words[0]):
            raise SnippetError(f"line {number}: write {word!r} in full, and nothing after it")


def _naming(first: str, beginning: tuple[str, ...]) -> str:
    command = " ".join(beginning)
    return f"{command!r}" if first == beginning[0] else f"{first!r}, which FRR may take for {command!r},"


def _abbreviates(words: tuple[str, ...], command: tuple[str, ...]) -> bool:
    """Whether a line may be, to vtysh, a command that begins like this."""
    return len(words) >= len(command) and all(full.startswith(word) for word, full in zip(words, command, strict=False))


def _openers(openers: Openers) -> Iterator[tuple[str, ...]]:
    for key, inner in openers.items():
        yield tuple(key.split())
        yield from _openers(inner)


_OPENERS: Final = tuple(sorted(set(_openers(OPENERS))))
