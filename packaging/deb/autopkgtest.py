#!/usr/bin/python3
"""Run the package's tests (``debian/tests``) on booted guests: ``autopkgtest.py [TEST...]``, all of them without names.

Does what autopkgtest does with a virtual machine, for this repository's guest: a fresh machine for each test, the
package that was built last installed by apt, then the test in a copy of the sources. Logs of a failed test are in
``build/guest-logs``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parents[1] / "tests/harness"))

from guestvm.errors import GuestError  # noqa: E402
from guestvm.image import Image, ensure_image  # noqa: E402
from guestvm.logs import collect  # noqa: E402
from guestvm.machine import Machine  # noqa: E402
from guestvm.progress import say  # noqa: E402
from guestvm.remote import Completed  # noqa: E402

CONTROL = ROOT / "debian" / "tests" / "control"
#: What tests read of the sources.
SOURCES = ("debian/tests", "packaging/examples", "tests/harness/demo/rootfs", "packaging/systemd")

TESTBED = "/root/testbed"
PACKAGE = f"{TESTBED}/openperouter.deb"
#: The machine before the first installation, if it was recorded.
BEFORE = f"{TESTBED}/before"
#: Nothing but the package, as on a machine without a network; what it depends on is in the guest.
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends"
#: Byte code is compiled, and services started, on an emulated machine.
INSTALL_SECONDS = 900
#: Hashes files of /etc and /var/lib, after up to 300 s for addresses to settle (debian/tests/lib.sh).
PICTURE_SECONDS = 900
TEST_SECONDS = 1500


def declared() -> list[str]:
    """Return the tests of debian/tests/control in its order."""
    return re.findall(r"^Tests: (.+)$", CONTROL.read_text(), re.MULTILINE)


def prepare(machine: Machine, package: Path) -> None:
    """Put the package and the sources that tests read on the guest."""
    with tempfile.TemporaryDirectory(prefix="openperouter-autopkgtest-") as name:
        directory = Path(name)
        shutil.copyfile(package, directory / "openperouter.deb")
        for source in SOURCES:
            shutil.copytree(ROOT / source, directory / "source" / source)
        machine.remote.copy_in(directory, TESTBED)


def install(machine: Machine, package: str = PACKAGE) -> None:
    """Install a package that is on the guest."""
    machine.remote.run(f"{INSTALL} {package}", seconds=INSTALL_SECONDS)


def take_picture(machine: Machine) -> None:
    """Record the state of a prepared guest, with which the test of purging compares."""
    command = f"cd {TESTBED}/source && . debian/tests/lib.sh && within settled && picture {BEFORE}"
    machine.remote.run(command, seconds=PICTURE_SECONDS)


def run_test(machine: Machine, test: str) -> Completed:
    """Run one test on a prepared guest with the package installed."""
    command = f"cd {TESTBED}/source && OPENPEROUTER_DEB={PACKAGE} OPENPEROUTER_BEFORE={BEFORE} debian/tests/{test} 2>&1"
    return machine.remote.run(command, seconds=TEST_SECONDS, check=False)


def run(image: Image, package: Path, test: str) -> bool:
    """Run one test on a machine of its own; return whether it passed."""
    with Machine.boot(image) as machine:
        try:
            prepare(machine, package)
            say(f"{test}: apt install")
            install(machine)
            say(f"{test}: running")
            done = run_test(machine, test)
            passed, output = done.returncode == 0, done.stdout
        except GuestError as error:
            passed, output = False, str(error)
        if not passed:
            collect(machine, ROOT / "build" / "guest-logs" / f"autopkgtest-{test}")
    print(output, flush=True)
    say(f"{test}: {'PASS' if passed else 'FAIL'}")
    return passed


def main() -> int:
    """Run the tests named, or all; the exit code is 1 when one failed and 2 when none could run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("tests", nargs="*", choices=[*declared(), []], metavar="TEST", help=", ".join(declared()))
    tests = parser.parse_args().tests or declared()
    package = next(iter((ROOT / "build" / "deb").glob("*.deb")), None)
    if package is None or os.geteuid() != 0:
        sys.stderr.write("autopkgtest.py needs root and a package: run packaging/deb/build.py first\n")
        return 2
    try:
        image = ensure_image()
        results = {test: run(image, package, test) for test in tests}
    except GuestError as error:
        say(f"FAILED: {error}")
        return 2
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
