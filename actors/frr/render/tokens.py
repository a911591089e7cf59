"""What may be printed into FRR's text: single words.

FRR's configuration is a language of lines. A value with a line break would be a new command, so nothing but a word of
printable characters ever reaches a template's output, whatever the layers before have promised.
"""

from __future__ import annotations

from supervisor.runtime.faults import ConfigFault


class UnsafeToken(ConfigFault):
    """A value that would not stay one word in FRR's text. The message does not show it: it may be a secret."""


def token(value: object) -> str:
    """Return a value's text; raise :class:`UnsafeToken` unless it is one printable word."""
    text = str(value)
    if not text or not text.isprintable() or any(character.isspace() for character in text):
        raise UnsafeToken(f"a {type(value).__name__} of {len(text)} characters is not one printable word")
    return text
