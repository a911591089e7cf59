"""Is the router's FRR installed, configured to run where it must, and running?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from actors.lib.frr.processes import CORE_DAEMONS, DAEMONS

from .facts import Facts
from .findings import Finding, error, ok, warning

#: The first FRR with everything that our configuration needs, Debian 13's.
OLDEST = (10, 3)
#: FRR that can leave an L3VNI stale after it went down and up quickly (0f2cb27310, reverted for 10.5 by aab7420bd6).
FLAPPING = ((10, 3), (10, 4))
#: Those of the daemons that its ``daemons`` file decides about; the others always run.
SWITCHED = ("bgpd", "bfdd")


def version(facts: Facts) -> Iterator[Finding]:
    """Is FRR there and new enough?"""
    if facts.frr is None:
        return
    found = re.match(r"(\d+)\.(\d+)", facts.frr.version)
    if found is None:
        yield error("frr-version", "FRR is not installed", "apt install frr frr-pythontools")
        return
    number = (int(found[1]), int(found[2]))
    if number < OLDEST:
        yield error("frr-version", f"FRR {facts.frr.version} is too old", "install FRR 10.3 or newer")
    elif number in FLAPPING:
        known = "knows a fault: an L3VNI may stay stale after it went down and up within a second; mended in 10.5"
        yield ok("frr-version", f"FRR {facts.frr.version} {known}; openperouter never does that and looks out for it")
    else:
        yield ok("frr-version", f"FRR {facts.frr.version}")


def programs(facts: Facts) -> Iterator[Finding]:
    """Are the programs there that drive FRR?"""
    if facts.frr is None or not facts.frr.version:
        return
    for there, path, package in (
        (facts.frr.vtysh, facts.settings.vtysh, "frr"),
        (facts.frr.reload, facts.settings.frr_reload, "frr-pythontools"),
    ):
        if not there:
            yield error("frr-programs", f"{path} is not there", f"apt install {package}")


def daemons_file(facts: Facts) -> Iterator[Finding]:
    """Does FRR start the daemons that we need?"""
    if facts.frr is None:
        return
    path = facts.settings.frr_etc_dir / facts.settings.frr_pathspace / "daemons"
    switches = facts.frr.daemons_file
    if switches is None:
        yield error(
            "frr-daemons",
            f"{path} is not there: FRR does not know which daemons to start",
            "apt install --reinstall -o Dpkg::Options::=--force-confmiss openperouter",
        )
        return
    off = [name for name in SWITCHED if switches.get(name, "no") != "yes"]
    for name in off:
        yield error("frr-daemons", f"{path} does not start {name}", f"set {name}=yes there, then {_restart(facts)}")
    if switches.get("vtysh_enable", "yes") == "no":
        cure = f"set vtysh_enable=yes there, then {_restart(facts)}"
        yield error("frr-daemons", f"{path} keeps FRR from loading its configuration at start", cure)
    elif not off:
        yield ok("frr-daemons", f"{path} starts {' and '.join(SWITCHED)}")


def unit(facts: Facts) -> Iterator[Finding]:
    """Is FRR's unit there, told where to run, and up?"""
    found = facts.unit(facts.frr_unit)
    if found is None:
        return
    if found.load != "loaded":
        yield error("frr-unit", f"{found.name} is {found.load}", "apt install --reinstall frr")
        return
    if not any(path.endswith("/openperouter.conf") for path in found.drop_ins):
        yield error(
            "frr-unit",
            f"{found.name} lacks openperouter's drop-in: it runs in the host's network namespace",
            f"apt install --reinstall openperouter, systemctl daemon-reload, {_restart(facts)}",
        )
    if found.active == "active":
        yield ok("frr-unit", f"{found.name} is active")
    else:
        why = "" if found.result == "success" else f", {found.result}"
        yield error(
            "frr-unit",
            f"{found.name} is {found.active} ({found.sub}{why})",
            f"journalctl -u {found.name} -n 50, then {_restart(facts)}",
        )


def running(facts: Facts) -> Iterator[Finding]:
    """Do all daemons answer, and in the right place?"""
    if facts.frr is None or not facts.frr.version:
        return
    answering = facts.frr.running
    if answering is None:
        yield error("frr-running", facts.frr.silence or "FRR does not answer", _restart(facts))
        return
    missing = sorted(DAEMONS - answering)
    cure = f"journalctl -u {facts.frr_unit} -n 50, then {_restart(facts)}"
    if CORE_DAEMONS.intersection(missing):
        yield error("frr-running", f"FRR runs without {', '.join(missing)}", cure)
    elif missing:
        message = f"FRR runs without {', '.join(missing)}: a configuration with BFD or static routes is not applied"
        yield warning("frr-running", message, cure)
    else:
        yield ok("frr-running", f"{', '.join(sorted(DAEMONS))} answer")
    if facts.frr.outdated:
        message = f"FRR was upgraded, and {', '.join(facts.frr.outdated)} still run what was installed before"
        yield warning("frr-running", message, f"{_restart(facts)} when the sessions may be lost for some seconds")
    if facts.frr.inside is False:
        yield error(
            "frr-running",
            f"zebra does not run in the network namespace {facts.settings.netns}",
            _restart(facts),
        )


def conf(facts: Facts) -> Iterator[Finding]:
    """Can FRR, and nobody else, read the configuration with which it boots?"""
    if facts.frr is None or not facts.frr.version:
        return
    path = facts.settings.frr_etc_dir / facts.settings.frr_pathspace / "frr.conf"
    file = facts.frr.conf
    cure = f"chown frr:frr {path}; chmod 0640 {path}"
    if file is None:
        cure = "systemctl restart openperouter writes it once it has something to apply"
        yield warning("frr-conf", f"{path} is not there: FRR restarts without any configuration", cure)
    elif file.mode & 0o007:
        yield error("frr-conf", f"{path} has mode {file.mode:04o} and may hold passwords", cure)
    elif file.owner != "frr":
        yield error("frr-conf", f"{path} belongs to {file.owner}: FRR refuses to read it", cure)
    else:
        yield ok("frr-conf", f"{path} is FRR's alone")


def _restart(facts: Facts) -> str:
    return f"systemctl restart {facts.frr_unit}"


CHECKS = (version, programs, daemons_file, unit, running, conf)
