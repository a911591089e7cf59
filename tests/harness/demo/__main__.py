"""``make demo``: boots a guest, starts the router on it under systemd, and shows that it forwards.

Ends with a verdict; the exit code is 0 when every check passed, 1 when one failed, 2 when the demonstration could not
run. With ``--prompt`` it leaves the user at a shell on the guest, and the guest goes when that shell ends.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from guestvm.errors import GuestError
from guestvm.image import ensure_image
from guestvm.logs import collect
from guestvm.machine import Machine
from guestvm.progress import elapsed, say

from . import topology
from .checks import CHECKS

_SHOWN = (
    "openperouter status",
    "vtysh -N perouter -c 'show bgp l2vpn evpn summary'",
    "vtysh -N perouter -c 'show ip route vrf red'",
    "vtysh -N perouter -c 'show evpn vni'",
)

_WELCOME = """
This is the node. Things to try:
    openperouter status            openperouter plan            openperouter show desired
    vtysh -N perouter              the router's FRR (also: -N leaf, -N hostbgp)
    ip -n perouter -brief link     the router's devices
    ping 192.168.20.2              a host behind the fabric, through VRF red
    ls /etc/openperouter/configs   change something, then: systemctl reload openperouter; journalctl -u openperouter
Leave with "exit": the guest is thrown away.
"""

_LOGS = topology.CHECKOUT / "build" / "guest-logs" / "demo"


def main() -> int:
    """Run the demonstration; return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--prompt", action="store_true", help="leave the user at a prompt on the guest")
    arguments = parser.parse_args()
    try:
        with Machine.boot(ensure_image()) as machine:
            try:
                failed = _demonstrate(machine)
            except GuestError:
                collect(machine, _LOGS)
                print(f"demo: logs of the failure are in {_LOGS}", file=sys.stderr)
                raise
            if arguments.prompt:
                print(_WELCOME, flush=True)
                subprocess.run(machine.remote.argv("exec bash -l", terminal=True), check=False)
    except GuestError as error:
        print(f"demo: cannot run: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    return 1 if failed else 0


def _demonstrate(machine: Machine) -> int:
    say("installing this checkout and the fabric around it")
    topology.install(machine)
    say("systemctl start openperouter (and the fabric's FRRs), waiting until systemd says that it is ready")
    seconds = topology.start(machine)
    say(f"ready after {seconds:.1f} s")
    machine.remote.run("/usr/local/libexec/fabric/attach")

    verdicts = [(check, check.wait(machine)) for check in CHECKS]
    for command in _SHOWN:
        shown = machine.remote.run(command, check=False)
        print(f"\n# {command}\n{shown.stdout}{shown.stderr}", end="")

    print()
    for check, verdict in verdicts:
        print(f"{'ok    ' if verdict.ok else 'FAILED'}  {check.title:<42} {verdict.evidence}")
    failed = sum(not verdict.ok for _check, verdict in verdicts)
    if failed:
        collect(machine, _LOGS)
        print(f"\ndemo: FAILED: {failed} of {len(verdicts)} checks, {elapsed():.0f} s; logs are in {_LOGS}")
    else:
        print(f"\ndemo: ok: all {len(verdicts)} checks passed, {elapsed():.0f} s")
    sys.stdout.flush()
    return failed


sys.exit(main())
