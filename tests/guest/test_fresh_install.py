"""``apt-get install`` and nothing more: everything runs, and says that there is nothing to do."""

from __future__ import annotations

import json
import re
import subprocess

import autopkgtest

from demo import topology
from guestvm.machine import Machine

from .commands import active, eventually, property_of
from .package import built_package

OPERATIONS = topology.CHECKOUT / "docs" / "operations.md"
UNITS = ("openperouter.service", "openperouter-netns.service", "frr@perouter.service")


def test_an_empty_configuration_is_active_and_says_so(fresh: Machine) -> None:
    # apt waits for a minute at most, which a slow machine exceeds.
    eventually(lambda: active(fresh), "the unit is active")
    assert property_of(fresh, "UnitFileState") == "enabled"
    shown = fresh.remote.run("systemctl status --no-pager openperouter").stdout
    assert re.search(r"Status: .*no configuration in /etc/openperouter/configs: idle", shown)
    result = fresh.remote.run("openperouter status")
    assert "no configuration in /etc/openperouter/configs: idle" in result.stdout
    assert not fresh.remote.run("systemctl --failed --no-legend --plain").stdout.strip()


def test_smoke(fresh: Machine) -> None:
    done = autopkgtest.run_test(fresh, "smoke")
    assert done.returncode == 0, done.stdout


def test_hardening(fresh: Machine) -> None:
    done = autopkgtest.run_test(fresh, "hardening")
    assert done.returncode == 0, done.stdout


def test_no_unprivileged_user_can_delay_a_unit(fresh: Machine) -> None:
    user = "setpriv --reuid=65534 --regid=65534 --clear-groups --"
    fresh.remote.run("systemctl restart openperouter-netns")
    # Any file can be locked that can be opened, whatever its name.
    files = fresh.remote.run("find /run -maxdepth 2 -path '/run/openperouter*' -type f").stdout.split()
    assert {"/run/openperouter/lock", "/run/openperouter-netns/lock"} <= set(files)
    for file in files:
        done = fresh.remote.run(f"{user} flock -n {file} true", check=False)
        assert done.returncode != 0, file
        assert "Permission denied" in done.stderr
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/openperouter/control.sock')"
    done = fresh.remote.run(f'{user} python3 -c "{connect}"', check=False)
    assert "PermissionError" in done.stderr
    assert property_of(fresh, "TimeoutStartUSec", "openperouter-netns.service") == "1min"


def test_apt_does_not_wait_for_a_network_nic_that_is_missing(fresh: Machine) -> None:
    done = autopkgtest.run_test(fresh, "missing-nic")
    # The next daemon has nothing to complain of any more.
    fresh.remote.run("systemctl restart openperouter", seconds=300)
    assert done.returncode == 0, done.stdout


def test_each_exposure_that_is_left_is_explained(fresh: Machine) -> None:
    answer = fresh.remote.run("systemd-analyze security --json=short openperouter.service").stdout
    left = {found["name"] for found in json.loads(answer) if found["set"] is False}
    assert left
    page = OPERATIONS.read_text().replace("\\|", "|")
    assert sorted(name for name in left if f"`{name}`" not in page) == []


def test_each_unit_names_manual_pages_that_the_package_has(fresh: Machine) -> None:
    listed = subprocess.run(
        ["dpkg-deb", "--contents", str(built_package())], check=True, capture_output=True, text=True
    ).stdout
    pages = set(re.findall(r"/man/man\d/(\S+)\.(\d)\.gz", listed))
    for unit in UNITS:
        named = set(re.findall(r"man:(\S+)\((\d)\)", property_of(fresh, "Documentation", unit)))
        assert named, unit
        assert named <= pages, unit


def test_nothing_was_taken_from_the_host(fresh: Machine) -> None:
    assert "192.168.11.3/24" in fresh.remote.run("ip -brief address show dev toswitch1").stdout
    devices = fresh.remote.run("ip -n perouter -o link").stdout.splitlines()
    assert [line.split(": ")[1] for line in devices] == ["lo"]
