"""Collecting: whatever one piece does, the others come, in bounded time and size, and clean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest
import trio
import trio.testing

from config.settings import Settings
from supervisor.operations.bundle import Redactor, archive, collect
from supervisor.operations.bundle.archive import Piece, Source
from supervisor.operations.bundle.sources import sources
from supervisor.operations.doctor.examine import AREA_SECONDS
from supervisor.process.subprocesses import CommandTimeout

PLANTED = "hunter2hunter2"


def saying(text: str) -> Source:
    async def source() -> str:
        await trio.lowlevel.checkpoint()
        return text

    return source


def failing(error: Exception) -> Source:
    async def source() -> str:
        await trio.lowlevel.checkpoint()
        raise error

    return source


async def hanging() -> str:
    await trio.sleep_forever()
    raise AssertionError


async def collected(sources: Mapping[str, Source], **bounds: float) -> dict[str, Piece]:
    return {piece.name: piece for piece in await collect(sources, Redactor([PLANTED]), **bounds)}


async def test_each_text_and_each_error_is_cleaned() -> None:
    pieces = await collected(
        {
            "journal.txt": saying(f"peer said {PLANTED}"),
            "frr.txt": saying(" neighbor 10.0.0.9 password unknown-one"),
            "broken.txt": failing(OSError(f"cannot open {PLANTED}")),
        }
    )
    everything = "".join(piece.text + piece.error for piece in pieces.values())
    assert PLANTED not in everything
    assert "unknown-one" not in everything
    assert "peer said" in pieces["journal.txt"].text


async def test_a_piece_that_fails_leaves_its_error_and_costs_nothing_else() -> None:
    pieces = await collected({"bad": failing(ZeroDivisionError("oops")), "good": saying("fine")})
    assert "ZeroDivisionError: oops" in pieces["bad"].text
    assert pieces["good"].text == "fine"
    entries = {entry["name"]: entry for entry in json.loads(pieces["manifest.json"].text)["pieces"]}
    assert entries["bad"]["error"] == "ZeroDivisionError: oops"
    assert entries["good"]["error"] == ""


async def test_a_piece_that_hangs_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    pieces = await collected({"slow": hanging, "good": saying("fine")})
    assert "took longer" in pieces["slow"].error
    assert pieces["good"].text == "fine"


async def test_an_area_that_doctor_waits_for_costs_the_bundle_neither_form_and_is_waited_for_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined = 0

    async def hangs() -> object:
        nonlocal examined
        examined += 1
        return await hanging()

    module = import_module("supervisor.operations.doctor.examine")
    monkeypatch.setattr(module, "_readers", lambda *_: {"clock": hangs})
    forms = {name: source for name, source in sources(Settings(), tmp_path, hours=1).items() if "doctor" in name}
    pieces = await collected(forms)
    for name in ("doctor.txt", "doctor.json"):
        assert pieces[name].error == ""
        assert f"took longer than {AREA_SECONDS:g} s" in pieces[name].text
    assert examined == 1


async def test_all_together_have_a_deadline(autojump_clock: trio.testing.MockClock) -> None:
    sources: dict[str, Source] = {f"slow{number}": hanging for number in range(40)}
    begun = trio.current_time()
    pieces = await collected(sources, seconds=50)
    assert trio.current_time() - begun <= 51
    late = [piece for piece in pieces.values() if "altogether" in piece.error]
    assert len(late) == 36
    assert len(pieces) == 41


async def test_what_a_program_said_before_it_hung_is_kept() -> None:
    late = CommandTimeout(("vtysh",), 5, f"half a table {PLANTED}", "")
    pieces = await collected({"table": failing(late)})
    assert "half a table ********" in pieces["table"].text
    assert "vtysh did not end" in pieces["table"].error


async def test_a_large_text_is_cut_between_lines_journals_at_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "PIECE_CHARACTERS", 25)
    text = "first line\nsecond line\nthird line\n"
    pieces = await collected({"journal.txt": saying(text), "table.txt": saying(text)})
    assert pieces["journal.txt"].text == "*** 11 characters are omitted ***\nsecond line\nthird line\n"
    assert pieces["table.txt"].text == "first line\nsecond line\n*** 11 characters are omitted ***\n"
    assert pieces["journal.txt"].truncated


async def test_the_whole_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "TOTAL_CHARACTERS", 100)
    pieces = await collected({"one": saying("x" * 80), "two": saying("y" * 80), "three": saying("z" * 15)})
    assert pieces["one"].text == "x" * 80
    assert "too large" in pieces["two"].error
    assert pieces["three"].text == "z" * 15
