"""Log lines with fields, for the journal, a terminal or a pipe.

One line per change of state; while nothing changes, nothing is logged at INFO. The standard library's logging carries
the lines, so that libraries' warnings come out the same way. Logging never blocks and never raises: a missing or slow
reader of the log must not end the daemon.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
import unicodedata
from collections.abc import Mapping
from typing import Final

from .sinks import STDERR, Sink, choose_sink

#: Root of our loggers' names; an actor's logger is one below it.
_ROOT: Final = "openperouter"

_SYSLOG_PRIORITY: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
_COLOUR: Final = {logging.DEBUG: "\033[2m", logging.WARNING: "\033[33m", logging.ERROR: "\033[31m"}
_PLAIN_VALUE: Final = re.compile(r"[^\s\"'=\x00-\x1f\x7f]+")


class Log:
    """One actor's log. Fields are shown as ``key=value`` and become journal fields; one of None is left out.

    ``message_id`` is not shown: it names the kind of event in the journal's catalogue.
    """

    def __init__(self, actor: str) -> None:
        self.actor = actor
        self._logger = logging.getLogger(f"{_ROOT}.{actor}")

    def debug(self, message: str, /, **fields: object) -> None:
        """Log what only a developer needs."""
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: object) -> None:
        """Log a change of state."""
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: object) -> None:
        """Log that something is not as it should be, and is handled."""
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, /, **fields: object) -> None:
        """Log that something is not in force that should be."""
        self._write(logging.ERROR, message, fields)

    def bug(self, message: str, error: BaseException, /, **fields: object) -> None:
        """Log an exception with its traceback."""
        self._write(logging.ERROR, message, fields, traceback=error)

    def _write(
        self, level: int, message: str, fields: Mapping[str, object], *, traceback: BaseException | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            present = {key: value for key, value in fields.items() if value is not None}
            extra = {"actor": self.actor, "fields": present}
            # The third frame from here is the line that logs.
            self._logger.log(level, "%s", message, exc_info=traceback, extra=extra, stacklevel=3)


def get_logger(actor: str) -> Log:
    """Return the log of an actor or of another part of the program."""
    return Log(actor)


def configure(level: str) -> None:
    """Send all logging to the journal or to standard error. Call again to change the level.

    Raises :class:`ValueError` for a level other than ``debug``, ``info``, ``warning`` or ``error``. Libraries
    log from WARNING on.
    """
    if level not in ("debug", "info", "warning", "error"):
        raise ValueError(f"log level {level!r} is none of debug, info, warning, error")
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(handler)
    root.addHandler(_Handler(choose_sink(), colour=os.isatty(STDERR)))
    root.setLevel(logging.WARNING)
    logging.getLogger(_ROOT).setLevel(level.upper())


class _Handler(logging.Handler):
    """Turns records into lines and fields and hands them to the sink."""

    def __init__(self, sink: Sink, *, colour: bool) -> None:
        super().__init__()
        self._sink = sink
        self._colour = colour

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._emit(record)
        except Exception:  # noqa: BLE001 - a value whose str() fails must not take its actor down
            text = f"{record.name}: a log line could not be formatted: {record.args!r}"
            self._sink.write(_SYSLOG_PRIORITY[logging.ERROR], text, text, {})

    def _emit(self, record: logging.LogRecord) -> None:
        actor = getattr(record, "actor", record.name)
        fields = getattr(record, "fields", {})
        text = _with_fields(f"{actor}: {_safe(record.getMessage())}", fields)
        if record.exc_info:
            text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        priority = _SYSLOG_PRIORITY.get(record.levelno, 6)
        place = {"CODE_FILE": record.pathname, "CODE_LINE": str(record.lineno), "CODE_FUNC": record.funcName}
        own = {journal_name(key): str(value) for key, value in fields.items()}
        self._sink.write(priority, text, self._decorated(record, text), {**own, **place, "ACTOR": str(actor)})

    def _decorated(self, record: logging.LogRecord, text: str) -> str:
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{moment}.{int(record.msecs):03d} {record.levelname.lower():<7} {text}"
        colour = _COLOUR.get(record.levelno, "") if self._colour else ""
        return f"{colour}{line}\033[0m" if colour else line


def _safe(text: str) -> str:
    """Return text on one line without control characters: messages may quote what users or programs wrote.

    What stands for a byte of a file's name that is not UTF-8 stays, for the sink to escape.
    """
    return "".join(one if one.isprintable() or unicodedata.category(one) == "Cs" else " " for one in text)


def _with_fields(text: str, fields: Mapping[str, object]) -> str:
    return " ".join([text, *(f"{key}={_value(value)}" for key, value in fields.items() if key != "message_id")])


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def journal_name(key: str) -> str:
    """Return a field's name as the journal wants it.

    Upper case letters, digits and underscores, beginning with a letter, at most 64 (systemd.journal-fields(7)).
    """
    name = re.sub(r"[^A-Z0-9_]", "_", key.upper()).lstrip("_0123456789")[:64]
    # These mean something else to the journal and come from elsewhere.
    return f"FIELD_{name}"[:64] if name in ("", "MESSAGE", "PRIORITY", "ACTOR", "SYSLOG_IDENTIFIER") else name
