"""The small, closed set of expected errors, so that a caller can act on the type alone.

A fault has its cause outside the program. The exit code of a process that ends because of it is a property of its kind
(``exit_code``). Every other exception is a bug.
"""

from __future__ import annotations

from typing import ClassVar, Final

#: Exit codes follow sysexits.h.
EXIT_OK: Final = 0
EXIT_UNAVAILABLE: Final = 69
EXIT_BUG: Final = 70
EXIT_OS: Final = 71
EXIT_TEMPORARY: Final = 75
EXIT_NO_PERMISSION: Final = 77
EXIT_CONFIG: Final = 78

#: Longest ``summarize`` text, in characters: it must fit on one line of ``openperouter status`` and in ``STATUS=``.
SUMMARY_LENGTH: Final = 300


class Fault(Exception):  # noqa: N818 - it is not always an error of the program
    """An expected error."""

    exit_code: ClassVar[int] = EXIT_BUG


class ConfigFault(Fault):
    """The configuration cannot work until a user changes it."""

    exit_code = EXIT_CONFIG


class DependencyFault(Fault):
    """FRR, the network namespace, the API server or a program is absent, hangs or refuses."""

    exit_code = EXIT_UNAVAILABLE


class PermissionFault(DependencyFault):
    """The user who runs the program may not use something that it needs."""

    exit_code = EXIT_NO_PERMISSION


class KernelFault(Fault):
    """The kernel refused or failed an operation."""

    exit_code = EXIT_OS


class AlreadyRunningFault(Fault):
    """Another instance holds the lock."""

    exit_code = EXIT_TEMPORARY


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors inside nested exception groups, in order; a plain error is its own only leaf."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def is_bug(error: BaseException) -> bool:
    """Whether any part of an error is not a fault, which deserves a traceback in the log."""
    return any(not isinstance(leaf, Fault) for leaf in leaves(error))


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a process that this error ends.

    A configuration fault anywhere wins, because it needs a user; then a bug, because it needs a developer; then the
    first fault.
    """
    codes = [leaf.exit_code if isinstance(leaf, Fault) else EXIT_BUG for leaf in leaves(error)]
    return next((code for code in (EXIT_CONFIG, EXIT_BUG) if code in codes), codes[0])


def summarize(error: BaseException) -> str:
    """Return one bounded line for logs and status. Bugs are prefixed with their type."""
    text = "; ".join(dict.fromkeys(_one_line(leaf) for leaf in leaves(error)))
    return text if len(text) <= SUMMARY_LENGTH else f"{text[: SUMMARY_LENGTH - 1]}…"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, Fault) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
