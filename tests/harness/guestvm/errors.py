"""The one kind of failure that this package reports: something about the guest that a person has to look at."""

from __future__ import annotations


class GuestError(Exception):
    """The guest cannot be built, booted or reached; the message says what to do, or where the evidence is."""
