"""Words and phrases that a reader has to translate: each has a usual one, which the message names.

They are looked for in every text of the project: code with its identifiers and comments, documents, the journal's
catalogue, the Debian package. Names are compared word by word: ``test_something_is_missing`` and ``isMissing`` contain
"is missing".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .sources import ROOT, tracked_files

#: A regular expression for whole words, and what to write instead.
INSTEAD_OF = {
    r"(?<!\.)tells?|told|telling": "report, log, show",
    "mend(s|ed|ing)?|cure[sd]?|curing": "fix",
    "anew|afresh": "again",
    "for ever": "indefinitely",
    "cards?": "NIC",
    "(is|are|was|were|be|been|being) away": "unreachable, absent",
    "(go|goes|going|went|gone) on": "continue",
    "crowds?": "cluster size",
    "strangers?": "another client, another process",
    "spoil(s|t|ed|ing|er|ers)?": "break, corrupt, interrupt",
    "(no|some|every)body|whoever": "no one, another process, an operator, or the passive",
    "one day": "when ...",
    "(come|comes|came) to rest": "settle",
    "hears?|heard|hearing|hearsay": "receive, see",
    "believ(e|es|ed|ing)": "verified, assumed",
    "way to the server": "connection, credentials",
    "hand's": "manual",
    "last words?": "message, line",
    "pet(s|ted|ting)?": "notify the watchdog",
    "(be|been) had": "unavailable",
    "(what|that|which|it) is none(?! of)": "malformed, unknown, any other",
    "for others than": "unless, except for",
    "(die|dies|died|dying) of": "crash on",
    "of late": "recently",
    "(said|says?|told) once|(know|knows|knew|known) of|speaks?|spoken|words? of": "log once, know, use, mention",
}
#: Between the words of a phrase: a space, or the end of a line with the beginning of a comment.
_SPACE = r"[\s#:]+"
BANNED = {
    re.compile(rf"\b({words.replace(' ', _SPACE)})\b", re.IGNORECASE): instead for words, instead in INSTEAD_OF.items()
}
#: History, law, and this list.
EXCLUDED = frozenset({"CHANGELOG.md", "LICENSE", "debian/changelog", "debian/copyright", "tests/checks/test_words.py"})


def banned_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, word or phrase, and what to write instead, of each use of a banned one in a text."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")
    for pattern, instead in BANNED.items():
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[0], instead


def test_no_text_uses_a_banned_word() -> None:
    found = [
        f"{name}:{number}: {word!r}: write {instead}"
        for path in tracked_files()
        if (name := str(path.relative_to(ROOT))) not in EXCLUDED
        for number, word, instead in banned_in(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("def test_nobody_knows() -> None:", "nobody"),
        ("class SpoiltFile:", "Spoilt"),
        ("# Mend it with --write.", "Mend"),
        ("It waits for ever.", "for ever"),
        ("FRR goes on with what the kernel has.", "goes on"),
        ("while the server is away", "is away"),
        ("a hand's edit", "hand's"),
        ("# FRR goes\n    # on", "goes\n    # on"),
    ],
)
def test_a_banned_word_is_found_in_identifiers_and_in_prose(text: str, word: str) -> None:
    assert word in [found for _, found, _ in banned_in(text)]


@pytest.mark.parametrize(
    "text",
    [
        "secure",
        "wildcard",
        "discards",
        "amended",
        "petabytes",
        "shears",
        "going one step further",
        "far away",
        "sleep_forever",
        "stream.tell()",
    ],
)
def test_a_word_that_only_contains_a_banned_one_is_allowed(text: str) -> None:
    assert list(banned_in(text)) == []
