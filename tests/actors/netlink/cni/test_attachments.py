"""Plugins faked by a script that writes down each call: their order, their failures, and a crash at each call."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest

from actors.netlink.cni.attachments import AttachmentRefused, Attachments
from actors.netlink.cni.dhcp import Leases
from actors.netlink.cni.protocol import PluginError
from actors.netlink.planning.observed import Address, CniRecord, Link, NamespaceView
from actors.netlink.state_files import ATTACHMENTS, StateFiles
from config.desired import CniAttachment
from config.models.cni import canonical
from supervisor.process.subprocesses import CommandMissing, CommandTimeout, Completed
from supervisor.runtime.faults import DependencyFault

NETNS = Path("/run/netns/perouter")
#: Keeps what it made in a file, as the kernel does; ``refuse-COMMAND`` beside it makes a command fail.
PLUGIN = """\
#!/bin/sh
here=$(dirname "$0"); me=$(basename "$0")
cat >"$here/stdin-$me-$CNI_COMMAND"
echo "$CNI_COMMAND $me $CNI_IFNAME" >>"$here/calls"
if [ -e "$here/refuse-$me-$CNI_COMMAND" ]; then cat "$here/refuse-$me-$CNI_COMMAND"; exit 1; fi
case $CNI_COMMAND in
    ADD) touch "$here/made-$me"; echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "'$me'"}]}' ;;
    DEL) rm -f "$here/made-$me" ;;
esac
"""
REFUSED = '{"code": 999, "msg": "no such master"}'
UNABLE = '{"code": 11, "msg": "try again later"}'
WANTED = CniAttachment(
    "net1", canonical({"cniVersion": "1.0.0", "name": "fabric", "plugins": [{"type": "one"}, {"type": "two"}]})
)
LINK = Link(5, "net1", up=True)
VIEW = NamespaceView({"net1": LINK}, {"net1": (Address(ip_interface("192.0.2.3/24")),)})


#: Its plugin asks the program dhcp for an address, as real ones do, and the answer is in the file ``address``.
LEASED = CniAttachment(
    "net1",
    canonical({"cniVersion": "1.0.0", "name": "fabric", "plugins": [{"type": "one", "ipam": {"type": "dhcp"}}]}),
)
LEASING = """\
#!/bin/sh
here=$(dirname "$0"); me=$(basename "$0")
cat >"$here/stdin-$me-$CNI_COMMAND"
echo "$CNI_COMMAND $me $CNI_CONTAINERID" >>"$here/calls"
if [ -e "$here/refuse-$me-$CNI_COMMAND" ]; then cat "$here/refuse-$me-$CNI_COMMAND"; exit 1; fi
case $CNI_COMMAND in
    ADD) [ $me = dhcp ] || touch "$here/made-$me"; echo '{"ips": [{"address": "'$(cat "$here/address")'"}]}' ;;
    DEL) rm -f "$here/made-$me" ;;
esac
"""


class Killed(BaseException):
    """The process ends here."""


class Plugins:
    """A directory of two plugins, a state directory, and a process that may be killed before a call."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "plugins"
        self.state = directory / "state"
        self.directory.mkdir()
        for name in ("one", "two"):
            (self.directory / name).write_text(PLUGIN)
            (self.directory / name).chmod(0o755)
        self.calls_left = -1
        self.daemon = 0
        self.start()

    def start(self) -> None:
        """Begin as a new process."""
        self.files = StateFiles(self.state, "boot")
        self.attachments = Attachments(self.directory, self.files, self.run, "perouter-underlay")

    def run(self, program: Path, env: Mapping[str, str], stdin: str) -> Completed:
        if self.calls_left == 0:
            raise Killed
        self.calls_left -= 1
        if not program.exists():
            raise CommandMissing(f"cannot start {program}: No such file or directory")
        done = subprocess.run([program], env=env, input=stdin, capture_output=True, text=True, check=False)
        return Completed((str(program),), done.returncode, done.stdout, done.stderr)

    def lease(self) -> None:
        """Begin as a new process with a DHCP daemon in its first run."""
        for name in ("one", "dhcp"):
            (self.directory / name).write_text(LEASING)
            (self.directory / name).chmod(0o755)
        self.give("192.0.2.3/24")
        self.daemon = 1
        leases = Leases(Path("/run/openperouter/dhcp/daemon.sock"), self.ready)
        self.attachments = Attachments(self.directory, self.files, self.run, "perouter-underlay", leases)

    def ready(self) -> int:
        if self.daemon == 0:
            raise DependencyFault("the DHCP daemon does not start: no such file")
        return self.daemon

    def give(self, address: str) -> None:
        (self.directory / "address").write_text(address)

    def leased(self, address: str = "192.0.2.3/24", *, up: bool = True) -> PluginError | None:
        """Check the interface with this address."""
        view = NamespaceView({"net1": replace(LINK, up=up)}, {"net1": (Address(ip_interface(address)),)})
        return self.attachments.check(LEASED, view, NETNS)

    def refuse(self, plugin: str, command: str, answer: str = REFUSED) -> Path:
        path = self.directory / f"refuse-{plugin}-{command}"
        path.write_text(answer)
        return path

    def calls(self) -> list[str]:
        path = self.directory / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [call.removesuffix(" net1") for call in found]

    def live(self) -> None:
        """Make the interface, remove it, and make another."""
        self.attachments.attach(WANTED, NETNS, self.exists)
        self.attachments.detach("net1", NETNS, self.exists)
        self.attachments.attach(replace(WANTED, runtime='{"mac":"02:00:00:00:00:01"}'), NETNS, self.exists)

    def exists(self) -> bool:
        return bool(self.made())

    def made(self) -> set[str]:
        return {path.name.removeprefix("made-") for path in self.directory.glob("made-*")}

    def stdin(self, plugin: str, command: str) -> Any:
        return json.loads((self.directory / f"stdin-{plugin}-{command}").read_text())


@pytest.fixture
def plugins(tmp_path: Path) -> Plugins:
    return Plugins(tmp_path)


def test_plugins_are_called_in_order_and_removed_in_reverse_with_the_cached_result(plugins: Plugins) -> None:
    plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    assert plugins.calls() == ["ADD one", "ADD two"]
    assert "prevResult" not in plugins.stdin("one", "ADD")
    assert plugins.stdin("two", "ADD")["prevResult"]["interfaces"] == [{"name": "one"}]
    assert plugins.files.cni()["net1"].attachment == WANTED
    assert (plugins.state / ATTACHMENTS).stat().st_mode & 0o777 == 0o600
    plugins.start()
    plugins.attachments.detach("net1", NETNS, plugins.exists)
    assert plugins.calls() == ["DEL two", "DEL one"]
    assert plugins.stdin("one", "DEL")["prevResult"]["interfaces"] == [{"name": "two"}]
    assert (plugins.made(), plugins.files.cni()) == (set(), {})


def test_a_failed_add_is_undone_at_once(plugins: Plugins) -> None:
    plugins.refuse("two", "ADD")
    with pytest.raises(AttachmentRefused, match=r"^CNI plugin two: no such master$"):
        plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    assert plugins.calls() == ["ADD one", "ADD two", "DEL two", "DEL one"]
    assert (plugins.made(), plugins.files.cni()) == (set(), {})


def test_what_a_failed_removal_leaves_is_still_known(plugins: Plugins) -> None:
    plugins.refuse("two", "ADD")
    refusal = plugins.refuse("one", "DEL")
    with pytest.raises(AttachmentRefused, match=r"no such master; removing what it left behind: CNI plugin one: "):
        plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    # The other plugin was called all the same.
    assert plugins.calls() == ["ADD one", "ADD two", "DEL two", "DEL one"]
    assert plugins.files.cni() == {"net1": CniRecord(WANTED)}
    refusal.unlink()
    plugins.attachments.detach("net1", NETNS, plugins.exists)
    assert plugins.files.cni() == {}


@pytest.mark.parametrize(("ipam", "forgotten"), [("static", True), ("host-local", False)])
def test_a_refused_removal_of_what_is_gone_counts_only_where_more_was_reserved(
    plugins: Plugins, ipam: str, forgotten: bool
) -> None:
    content = {"cniVersion": "1.0.0", "name": "fabric", "plugins": [{"type": "one", "ipam": {"type": ipam}}]}
    plugins.attachments.attach(CniAttachment("net1", canonical(content)), NETNS, plugins.exists)
    plugins.refuse("one", "DEL")
    (plugins.directory / "made-one").unlink()
    with nullcontext() if forgotten else pytest.raises(AttachmentRefused):
        plugins.attachments.detach("net1", NETNS, plugins.exists)
    assert (plugins.files.cni() == {}) is forgotten


def test_a_missing_plugin_is_named(plugins: Plugins) -> None:
    (plugins.directory / "two").unlink()
    with pytest.raises(AttachmentRefused, match=r"CNI plugin two: cannot start .*/plugins/two: No such file"):
        plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    assert plugins.made() == set()


def test_a_plugin_that_hangs_is_named(plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(program: Path, env: Mapping[str, str], stdin: str) -> Completed:
        raise CommandTimeout((str(program),), 10, "", "")

    attachments = Attachments(plugins.directory, plugins.files, hang, "perouter-underlay")
    with pytest.raises(AttachmentRefused, match=r"CNI plugin one: .*/one did not end within 10 s and was killed"):
        attachments.attach(WANTED, NETNS, plugins.exists)


@pytest.mark.parametrize("calls", range(5))
def test_a_process_that_is_killed_before_any_call_leaves_a_record_that_removes_everything(
    plugins: Plugins, calls: int
) -> None:
    plugins.calls_left = calls
    with pytest.raises(Killed):
        plugins.live()
    plugins.calls_left = -1
    plugins.start()
    assert set(plugins.files.cni()) == {"net1"}
    plugins.attachments.detach("net1", NETNS, plugins.exists)
    assert (plugins.made(), plugins.files.cni()) == (set(), {})


def test_a_disk_that_takes_no_record_lets_no_plugin_run(plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(record: CniRecord) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plugins.files, "save_cni", full)
    with pytest.raises(OSError, match="No space"):
        plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    assert plugins.calls() == []


def test_check_is_asked_once_for_each_state_of_the_kernel(plugins: Plugins) -> None:
    plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    plugins.calls()
    for _ in range(3):
        assert plugins.attachments.check(WANTED, VIEW, NETNS) is None
    assert plugins.calls() == ["CHECK one", "CHECK two"]
    assert plugins.stdin("one", "CHECK")["prevResult"]["interfaces"] == [{"name": "two"}]
    bare = NamespaceView({"net1": LINK})
    plugins.refuse("two", "CHECK")
    error = plugins.attachments.check(WANTED, bare, NETNS)
    assert error is not None
    assert (str(error), error.unable) == ("CNI plugin two: no such master", False)


def test_a_check_that_found_out_nothing_is_not_repeated_in_each_pass(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("actors.netlink.cni.attachments.time.monotonic", lambda: now)
    plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    plugins.refuse("one", "CHECK", UNABLE)
    plugins.calls()
    for _ in range(3):
        error = plugins.attachments.check(WANTED, VIEW, NETNS)
        assert error is not None
        assert error.unable
    assert plugins.calls() == ["CHECK one"]
    now += 61
    plugins.attachments.check(WANTED, VIEW, NETNS)
    assert plugins.calls() == ["CHECK one"]


def test_a_check_that_refuses_what_add_just_made_is_not_asked_again(plugins: Plugins) -> None:
    plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    plugins.refuse("one", "CHECK")
    plugins.calls()
    bare = NamespaceView({"net1": LINK})
    assert [plugins.attachments.check(WANTED, view, NETNS) for view in (VIEW, bare, VIEW)] == [None, None, None]
    assert plugins.calls() == ["CHECK one"]


def test_a_check_that_refuses_what_add_made_is_not_asked_by_the_next_process_either(plugins: Plugins) -> None:
    plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    plugins.refuse("one", "CHECK")
    assert plugins.attachments.check(WANTED, VIEW, NETNS) is None
    plugins.start()
    plugins.calls()
    assert plugins.attachments.check(WANTED, VIEW, NETNS) is None
    assert plugins.calls() == []
    # Made again, it is asked again.
    plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    plugins.calls()
    assert plugins.attachments.check(WANTED, VIEW, NETNS) is None
    assert plugins.calls() == ["CHECK one"]


def test_what_a_process_that_was_killed_did_not_remove_is_checked_again(plugins: Plugins) -> None:
    plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    plugins.refuse("one", "CHECK")
    assert plugins.attachments.check(WANTED, VIEW, NETNS) is None
    plugins.start()
    assert plugins.attachments.check(WANTED, VIEW, NETNS) is None
    plugins.calls_left = 1
    with pytest.raises(Killed):
        plugins.attachments.detach("net1", NETNS, plugins.exists)
    plugins.calls_left = -1
    plugins.start()
    error = plugins.attachments.check(WANTED, VIEW, NETNS)
    assert error is not None
    assert not error.unable


def test_a_check_is_asked_again_while_no_disk_takes_its_outcome(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(record: CniRecord) -> None:
        raise OSError(28, "No space left on device")

    plugins.attachments.attach(WANTED, NETNS, plugins.exists)
    plugins.refuse("one", "CHECK")
    plugins.calls()
    with monkeypatch.context() as patch:
        patch.setattr(plugins.files, "save_cni", full)
        assert plugins.attachments.check(WANTED, VIEW, NETNS) is None
    assert [plugins.attachments.check(WANTED, VIEW, NETNS) for _ in range(2)] == [None, None]
    assert plugins.calls() == ["CHECK one", "CHECK one"]


@pytest.mark.parametrize("case", ["no record", "another configuration", "no interface", "disabled"])
def test_what_cannot_be_asked_about_is_not(plugins: Plugins, case: str) -> None:
    wanted, view = WANTED, VIEW
    if case == "disabled":
        wanted = replace(WANTED, conflist=canonical(json.loads(WANTED.conflist) | {"disableCheck": True}))
    if case != "no record":
        plugins.attachments.attach(wanted, NETNS, plugins.exists)
    if case == "another configuration":
        wanted = replace(WANTED, runtime='{"mac":"02:00:00:00:00:01"}')
    if case == "no interface":
        view = NamespaceView()
    plugins.calls()
    assert plugins.attachments.check(wanted, view, NETNS) is None
    assert plugins.calls() == []


CLIENT = f"perouter-underlay-{socket.gethostname()}"


def test_the_dhcp_daemon_runs_before_a_lease_is_asked_for_and_each_node_is_a_client_of_its_own(
    plugins: Plugins,
) -> None:
    plugins.lease()
    plugins.attachments.attach(LEASED, NETNS, plugins.exists)
    assert plugins.stdin("one", "ADD")["ipam"] == {
        "type": "dhcp",
        "daemonSocketPath": "/run/openperouter/dhcp/daemon.sock",
    }
    for _ in range(3):
        assert plugins.leased() is None
    plugins.attachments.detach("net1", NETNS, plugins.exists)
    # No CHECK: the plugin would acquire another lease.
    assert plugins.calls() == [f"ADD one {CLIENT}", f"DEL one {CLIENT}"]


def test_without_the_dhcp_daemon_nothing_is_made_and_what_is_there_stays(plugins: Plugins) -> None:
    plugins.lease()
    plugins.daemon = 0
    with pytest.raises(AttachmentRefused, match=r"^CNI plugin dhcp: the DHCP daemon does not start: no such file$"):
        plugins.attachments.attach(LEASED, NETNS, plugins.exists)
    assert (plugins.calls(), plugins.files.cni()) == ([], {})
    plugins.daemon = 1
    plugins.attachments.attach(LEASED, NETNS, plugins.exists)
    plugins.daemon = 0
    error = plugins.leased()
    assert error is not None
    assert error.unable


def test_each_run_of_the_daemon_acquires_a_lease_again_and_another_address_is_drift(plugins: Plugins) -> None:
    plugins.lease()
    plugins.attachments.attach(LEASED, NETNS, plugins.exists)
    plugins.daemon = 2
    plugins.calls()
    assert [plugins.leased(), plugins.leased()] == [None, None]
    assert plugins.calls() == [f"ADD dhcp {CLIENT}"]
    plugins.daemon = 3
    plugins.give("192.0.2.4/24")
    error = plugins.leased()
    assert (str(error), error is not None and error.unable) == (
        "CNI plugin dhcp: the lease is 192.0.2.4/24 now, not 192.0.2.3/24",
        False,
    )


def test_a_lease_that_cannot_be_acquired_again_is_tried_again_after_a_while(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("actors.netlink.cni.attachments.time.monotonic", lambda: now)
    plugins.lease()
    plugins.attachments.attach(LEASED, NETNS, plugins.exists)
    plugins.daemon = 2
    refusal = plugins.refuse("dhcp", "ADD", '{"code": 999, "msg": "no more tries"}')
    plugins.calls()
    for _ in range(3):
        error = plugins.leased()
        assert error is not None
        assert error.unable
        assert "the lease cannot be acquired again: CNI plugin dhcp: no more tries" in str(error)
    assert plugins.calls() == [f"ADD dhcp {CLIENT}"]
    refusal.unlink()
    now += 61
    assert plugins.leased() is None


@pytest.mark.parametrize(
    ("address", "up", "expected"),
    [("192.0.2.3/24", False, "down, as when its lease has ended"), ("192.0.2.9/24", True, "lacks 192.0.2.3/24")],
)
def test_an_interface_that_is_down_or_lacks_its_lease_is_drift(
    plugins: Plugins, address: str, up: bool, expected: str
) -> None:
    plugins.lease()
    plugins.attachments.attach(LEASED, NETNS, plugins.exists)
    error = plugins.leased(address, up=up)
    assert error is not None
    assert (expected in str(error), error.unable) == (True, False)


def test_a_lease_of_another_run_of_the_daemon_is_acquired_to_be_released(plugins: Plugins) -> None:
    plugins.lease()
    plugins.attachments.attach(LEASED, NETNS, plugins.exists)
    plugins.daemon = 2
    plugins.calls()
    plugins.attachments.detach("net1", NETNS, plugins.exists)
    assert plugins.calls() == [f"ADD dhcp {CLIENT}", f"DEL one {CLIENT}"]


def test_a_lease_of_an_interface_that_went_with_its_parent_is_released(plugins: Plugins) -> None:
    plugins.lease()
    plugins.attachments.attach(LEASED, NETNS, plugins.exists)
    plugins.refuse("one", "DEL")
    (plugins.directory / "made-one").unlink()
    plugins.calls()
    plugins.attachments.detach("net1", NETNS, plugins.exists)
    assert plugins.calls() == [f"DEL one {CLIENT}", f"DEL dhcp {CLIENT}"]
    assert plugins.files.cni() == {}


def test_a_plugin_that_waits_for_a_lease_in_vain_says_so(plugins: Plugins) -> None:
    plugins.lease()

    def hang(program: Path, env: Mapping[str, str], stdin: str) -> Completed:
        raise CommandTimeout((str(program),), 10, "", "")

    leases = Leases(Path("/run/socket"), plugins.ready)
    attachments = Attachments(plugins.directory, plugins.files, hang, "perouter-underlay", leases)
    with pytest.raises(AttachmentRefused, match="within 10 s and was killed, waiting for a DHCP server or for the"):
        attachments.attach(LEASED, NETNS, plugins.exists)
