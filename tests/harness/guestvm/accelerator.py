"""Whether this host's KVM really runs a guest.

``/dev/kvm`` may open and still not run anything (nested virtualisation switched off half-way), so the question is
settled by booting the guest's kernel without a disk: where KVM works, it ends in the expected panic within two
seconds. The verdict is kept for the host's current boot.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .cache import cache_dir, locked
from .emulator import ensure_emulator
from .progress import say

#: Working KVM needs under two seconds, nested KVM under five.
_PROBE_SECONDS = 10

#: Without AVX and five-level page tables: an emulated machine needs a tenth less CPU for the same programs.
TCG = ("-accel", "tcg,thread=multi", "-cpu", "max,avx=off,avx2=off,xsave=off,la57=off")
KVM = ("-accel", "kvm", "-cpu", "host")


def accelerator(kernel: Path) -> tuple[str, ...]:
    """Return QEMU's arguments for the fastest accelerator that works, or for ``$OPENPEROUTER_ACCEL`` (kvm, tcg)."""
    forced = os.environ.get("OPENPEROUTER_ACCEL")
    if forced:
        return {"kvm": KVM, "tcg": TCG}[forced]
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    verdict = cache_dir() / "kvm-verdict"
    with locked("kvm"):
        known = verdict.read_text().split() if verdict.exists() else []
        if known[:1] != [boot_id]:
            works = _kvm_boots(kernel)
            say("KVM works here" if works else "KVM does not run a guest here: emulating (slower, same function)")
            known = [boot_id, "kvm" if works else "tcg"]
            verdict.write_text(" ".join(known))
    return KVM if known[1] == "kvm" else TCG


def _kvm_boots(kernel: Path) -> bool:
    command = [
        *(*ensure_emulator(), *KVM, "-M", "q35", "-m", "256", "-nodefaults", "-display", "none", "-serial", "stdio"),
        *("-no-reboot", "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return b"Kernel panic" in done.stdout
