"""The kinds of failure that this package reports: something for a person to look at, or something absent."""

from __future__ import annotations


class ClusterError(Exception):
    """A server cannot be built or does not run; the message says what to do, or holds the evidence."""


class NoGoError(ClusterError):
    """This machine has no Go that could build the servers: a reason to skip, aloud."""
