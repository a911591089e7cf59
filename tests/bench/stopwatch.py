"""Measures pieces of work and prints a line for each: what the parts of ``make bench`` share."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def measure(what: str, work: Callable[[], T], *, clock: Callable[[], float] = time.process_time) -> tuple[float, T]:
    """Run a piece of work; print and return its seconds by a clock, by default the process's CPU."""
    gc.collect()
    begin = clock()
    result = work()
    seconds = clock() - begin
    unit = "s CPU" if clock is time.process_time else "s"
    print(f"{what:<52} {seconds:8.3f} {unit}", flush=True)
    return seconds, result


def compare(what: str, value: float, limit: float | None = None, unit: str = "") -> bool:
    """Print a figure with its limit; return whether it keeps it."""
    kept = limit is None or value <= limit
    said = "" if limit is None else f"  limit {limit:g}{unit}: {'kept' if kept else 'EXCEEDED'}"
    print(f"{what:<52} {value:8.3f} {unit}{said}", flush=True)
    return kept
