"""Removes secrets from FRR text before it is shown.

Everything that is logged, displayed or put into an outcome and that may hold FRR's text passes through
:func:`redact`. It errs on the side of hiding: what follows a word that introduces a secret is hidden to the end of the
line.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "********"

#: Words after which FRR's grammar has a secret, in any daemon: BGP and IS-IS passwords, OSPF and RIP keys, key chains,
#: TCP-MD5 and TCP-AO, OSPFv3's hashes, NHRP, VRRP, SNMP and vty passwords. IS-IS domain and area passwords carry a
#: hyphen. Arguments on the way have a greatest length, so that the time is linear in the text's.
_INTRODUCES_SECRET: Final = re.compile(
    r"(?P<before>(?:^|[\s\"'-])(?:password|passwd|secret|key-string|key-chain-secret|authentication-key"
    r"|authentication[ \t]+string|message-digest-key \S{1,16} md5|md5|hmac-\S{1,32}|clear"
    r"|(?:nhrp|vrrp[ \t]+\S{1,16})[ \t]+authentication|community"
    r"|tcp-md5-auth|tcp-ao[ \t]+key|hash-algo[ \t]+\S{1,32}[ \t]+key)[ \t]+)"
    r"(?P<secret>\S[^\n]*)",
    re.IGNORECASE,
)

#: Uses of those words that introduce no secret, which operators need to read.
_HARMLESS: Final = re.compile(
    r"\b(?:set|match|send|bgp|clear)[ -]+(?:large-|ext)?community|clear (?:ip )?bgp", re.IGNORECASE
)


def redact(text: str) -> str:
    """Return the text with everything that may be a secret replaced by stars; keeps the lines apart."""
    return "\n".join(_redact_line(line) for line in text.split("\n"))


def _redact_line(line: str) -> str:
    if _HARMLESS.search(line) and "password" not in line.lower():
        return line
    return _INTRODUCES_SECRET.sub(lambda match: f"{match['before']}{HIDDEN}", line, count=1)
