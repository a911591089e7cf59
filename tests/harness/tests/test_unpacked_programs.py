"""User-Mode Linux and QEMU: what a host lacks is named before a download, and a failed one leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from guestvm.emulator import ensure_emulator
from guestvm.errors import GuestError
from guestvm.kernel import ensure_kernel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("OPENPEROUTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def program(cache: Path, name: str, script: str) -> None:
    file = cache.parent / "programs" / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_a_missing_program_is_named_with_its_package(cache: Path) -> None:
    program(cache, "mmdebstrap", "exit 1")
    with pytest.raises(GuestError, match="missing on this host: patchelf; install with: apt-get install patchelf"):
        ensure_kernel()


def test_a_failed_download_says_why_and_is_tried_again(cache: Path) -> None:
    program(cache, "patchelf", "exit 0")
    program(cache, "mmdebstrap", "echo the mirror is unreachable >&2; exit 25")
    for _ in range(2):
        with pytest.raises(GuestError, match=r"mmdebstrap failed \(25\):\nthe mirror is unreachable"):
            ensure_kernel()
    assert not list((cache / "kernels").iterdir())


def test_a_kernel_is_fetched_once_and_its_loader_is_where_it_will_be(cache: Path) -> None:
    # The last argument is the directory; nothing but the shell's own commands can be found.
    unpack = (
        'for d; do :; done; echo once >>"$0.runs"; cd "$d" && /bin/mkdir -p usr/bin && echo kernel >usr/bin/linux.uml'
    )
    program(cache, "mmdebstrap", unpack)
    program(cache, "patchelf", 'echo "$@" >"$0.arguments"')
    kernel = ensure_kernel()
    assert ensure_kernel() == kernel
    assert kernel.program.read_text() == "kernel\n"
    assert (cache.parent / "programs/mmdebstrap.runs").read_text() == "once\n"
    libraries = kernel.program.parents[1] / "lib/x86_64-linux-gnu"
    arguments = (cache.parent / "programs/patchelf.arguments").read_text()
    assert f"--set-interpreter {libraries}/ld-linux-x86-64.so.2 --set-rpath {libraries} " in arguments


def test_an_emulator_starts_with_the_libraries_beside_it(cache: Path) -> None:
    there = "for d; do :; done; cd $d && /bin/mkdir -p usr/bin var && echo >usr/bin/qemu-system-x86_64"
    program(cache, "mmdebstrap", there)
    loader, _option, libraries, emulator, *firmware = ensure_emulator()
    assert Path(emulator).exists()
    root = Path(emulator).parents[2]
    assert (root.parent, loader) == (cache / "emulators", f"{libraries}/ld-linux-x86-64.so.2")
    assert firmware == ["-L", f"{root}/usr/share/qemu", "-L", f"{root}/usr/share/seabios"]
    assert [directory.name for directory in root.iterdir()] == ["usr"]


def test_a_package_without_the_program_is_an_error_and_not_kept(cache: Path) -> None:
    program(cache, "mmdebstrap", "exit 0")
    with pytest.raises(GuestError, match="package qemu-system-x86 has no usr/bin/qemu-system-x86_64"):
        ensure_emulator()
    assert not list((cache / "emulators").iterdir())
