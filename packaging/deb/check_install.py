#!/usr/bin/python3
"""Install, upgrade, remove and purge the built package in a tree: ``check_install.py [PACKAGE.deb]``.

No service is started here and no kernel beyond the host's is needed: this checks that apt and dpkg succeed, that the
program runs with the release's libraries, that a purge leaves the file system as it was, and that it returns a NIC to
the host. Tests on a booted guest check the rest. Needs root; every command runs in namespaces of its own.
``OPENPEROUTER_SUITE=forky`` does it in the next Debian.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parents[1] / "tests/harness"))

from guestvm.errors import GuestError  # noqa: E402
from guestvm.progress import say  # noqa: E402
from guestvm.tree import ensure_tree  # noqa: E402

COMMAND_SECONDS = 300

#: Changed by every installation of any package, or by running at all.
VOLATILE = (
    "dev",
    "etc/ld.so.cache",
    "proc",
    "root",
    "sys",
    "tmp",
    "usr/lib/udev/hwdb.bin",
    "var/cache",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/lib/systemd/catalog",
    "var/log",
    "var/tmp",
)

#: $1 tree, $2 script. Packages must not start anything, and nothing outside is visible or reachable.
ENTER = """
set -eu
tree=$1
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount -t sysfs sysfs "$tree/sys"
mount -t tmpfs -o mode=755 run "$tree/run"
mount -t tmpfs -o mode=755 dev "$tree/dev"
mkdir "$tree/dev/pts"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$tree/dev/pts"
ln -s pts/ptmx "$tree/dev/ptmx"
for node in null zero full random urandom; do
    touch "$tree/dev/$node"
    mount --bind "/dev/$node" "$tree/dev/$node"
done
ln -s /proc/self/fd "$tree/dev/fd"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive HOME=/root \\
    chroot "$tree" /bin/sh -euc "$2"
"""
ISOLATE = ("unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child")

INSTALL = "apt-get -qq install --no-install-recommends -y {package}"
#: With the release's libraries every module is imported, the examples are checked, and the daemon runs for a moment,
#: waiting for FRR, which is not started. What it leaves is outside of what is compared.
USE = """
openperouter --version | grep '^openperouter [0-9]'
python3 -IB - <<'END'
import importlib, pkgutil, sys, warnings
sys.path.insert(0, "/usr/share/openperouter")
warnings.simplefilter("error")
# Libraries may warn of what later versions of Python do not do any more; that is theirs to change.
warnings.filterwarnings("default", module="(?!(actors|config|supervisor)[.])")
names = [module.name for name in ("actors", "config", "supervisor")
         for module in pkgutil.walk_packages([f"/usr/share/openperouter/{name}"], f"{name}.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names), "modules")
END
# In the release that it is built for, a start compiles no text and reads no module that is in the package's files.
python3 -IB - <<'END'
import platform, sys
sys.path.insert(0, "/usr/share/openperouter")
from supervisor.cli.program import build_parser
build_parser("run")
from supervisor.process import bytecode_cache, module_cache
before = {*sys.modules}
with module_cache.used(), bytecode_cache.used():
    import supervisor.main
specs = {name: getattr(sys.modules[name], "__spec__", None) for name in {*sys.modules} - before}
read = [name for name, spec in specs.items() if spec and (spec.origin or "").endswith(".py")
        and type(spec.loader) is not module_cache.RecordedLoader]
from actors.frr.render import render, template_bytecode
environment = render.environment()
for name in environment.list_templates():
    environment.get_template(name)
texts, templates = bytecode_cache.of_program(), template_bytecode.of_program()
print(len(texts.found), "texts and", len(templates.found), "templates;", len(texts.compiled), "texts compiled")
print(len(specs), "modules,", len(read), "read from files of their own")
if platform.freedesktop_os_release().get("VERSION_CODENAME") == "trixie":
    others = [text[:3] for text in texts.compiled if "__hash__" not in text[0] and "attrs generated" not in text[1]]
    assert len(texts.found) > 500 and not others and not templates.compiled, (others, templates.compiled)
    assert len(specs) > 400 and not read, read
END
directory=/tmp/use
mkdir $directory
cp -r /usr/share/doc/openperouter/examples/configs /usr/share/doc/openperouter/examples/node-config.yaml $directory
for name in configs state run; do mkdir -p $directory/$name; done
cat > $directory/openperouter.yaml <<END
configsDir: $directory/configs
nodeConfigFile: $directory/node-config.yaml
stateDir: $directory/state
runDir: $directory/run
END
alias router="openperouter --settings $directory/openperouter.yaml"
router validate
router validate --output json /usr/share/doc/openperouter/examples/configs | grep -Fx '[]'
router show desired | grep -q 'vni: 100'
router show peer-config red | grep -q 'router bgp'
openperouter schema | grep -q '"l3vnis"'
openperouter crds | grep -q '^kind: CustomResourceDefinition'
openperouter generate nodes /usr/share/doc/openperouter/examples/fleet/inventory.yaml $directory/fleet

ip link set lo up
ip netns add perouter
router run 2>$directory/journal & daemon=$!
until router status 2>/dev/null | grep 'waiting: FRR does not run'; do
    kill -0 $daemon || { cat $directory/journal; exit 1; }
    sleep 0.2
done
kill $daemon
wait $daemon
ip netns del perouter
rm -r $directory
"""
#: With a pseudo-terminal apt would mix the maintainer scripts' errors with their other output.
PURGE = """
apt-get -qq -o Dpkg::Use-Pty=0 purge -y openperouter >/tmp/output 2>/tmp/errors || {
    cat /tmp/output /tmp/errors
    exit 1
}
"""

#: A NIC with addresses and routes, moved and journalled as the daemon does it, then the package is purged.
PURGE_WITH_ROUTER = """
ip link set lo up
ip link add NIC type veth peer name wire
ip link set wire up
ip link set NIC up mtu 1400
ip link property add dev NIC altname nicslot0
ip address add 192.0.2.5/24 broadcast 192.0.2.255 dev NIC
ip address add 192.0.3.5/24 dev NIC label NIC:1
ip address add 2001:db8::5/64 dev NIC nodad noprefixroute
ip route add 198.51.100.0/24 via 192.0.2.1 dev NIC proto static metric 50 mtu 1300
ip -6 route add 2001:db8:1::/48 via 2001:db8::1 dev NIC onlink proto 200
show() {{
    ip -o address show dev NIC scope global | sed 's/^[0-9]*: //'
    ip -d link show dev NIC | grep -o 'mtu [0-9]*\\|state [A-Z]*\\|altname .*\\|group [a-z0-9]*'
    ip route show dev NIC; ip -6 route show dev NIC proto 200
}}
show > /tmp/before
{install} >/dev/null 2>&1
ip netns add perouter
python3 -IB - <<'END'
import sys
from pathlib import Path
sys.path.insert(0, "/usr/share/openperouter")
from ipaddress import ip_interface
from actors.netlink.planning.observed import Address, NicPhase, NicRecord, SavedRoute
from actors.netlink.state_files import StateFiles
from config.desired import Family
addresses = (
    Address(ip_interface("192.0.2.5/24")),
    Address(ip_interface("192.0.3.5/24"), broadcast="", label="NIC:1"),
    Address(ip_interface("2001:db8::5/64"), flags=0x282),
)
routes = (
    SavedRoute(Family.IPV4, "198.51.100.0/24", 254, "192.0.2.1", priority=50, protocol=4, mtu=1300),
    SavedRoute(Family.IPV6, "2001:db8:1::/48", 254, "2001:db8::1", priority=1024, protocol=200, flags=4),
)
record = NicRecord("NIC", NicPhase.INSIDE, 1400, "", True, addresses, routes, ("nicslot0",))
StateFiles(Path("/var/lib/openperouter")).save_nic(record)
END
{record}
ip link set NIC netns perouter group 4242
ip -n perouter link set NIC group 4242 up
ip -n perouter link add pe-e-100 group 4243 type veth peer name host-e-100 netns /proc/$$/ns/net
ip link set host-e-100 group 4243
ip -n perouter link add br-pe-100 group 4243 type bridge
ip route add unreachable default table 10000100 metric 4278198272 proto 79
ip -6 route add unreachable default table 10000100 metric 4278198272 proto 79
{purge}
show > /tmp/after
diff /tmp/before /tmp/after
[ ! -s /tmp/errors ] || {{ cat /tmp/errors; exit 1; }}
! grep -q 'openperouter: ' /tmp/output || {{ cat /tmp/output; exit 1; }}
[ ! -e /run/netns/perouter ]
! ip link show host-e-100 2>/dev/null
! ip route show table all | grep 'proto 79'
! ip -6 route show table all | grep 'proto 79'
"""

#: Where the disk was full the record is in /run alone.
RECORD_IN_RUN = "mkdir -p /run/openperouter; mv /var/lib/openperouter/nic-journal.json /run/openperouter/"

#: What others have put into the namespace stays there, and so does the namespace; what CNI plugins have made goes.
PURGE_WITH_FOREIGN_DEVICE = """
{install} >/dev/null 2>&1
ip netns add perouter
ip -n perouter link add net1 type bridge
mkdir -p {directory}
echo '{{"attachments": {{"net1": {{}}}}}}' > {directory}/cni-attachments.json
{foreign}
{purge}
"""
FOREIGN = "ip -n perouter link add mine type bridge"
IS_KEPT = """
ip -n perouter link show mine >/dev/null
grep -q 'perouter is kept, with what is still in it: mine$' /tmp/errors
ip netns delete perouter
"""

#: The same after the record was lost: the NIC must be returned all the same, and a message must report it.
PURGE_WITHOUT_RECORD = """
ip link add NIC type veth peer name wire
{install} >/dev/null 2>&1
ip netns add perouter
ip link set NIC netns perouter
ip -n perouter link set NIC group 4242 up
{purge}
ip -d link show NIC | grep -q 'group default'
grep -q 'returning NIC without its former addresses' /tmp/errors
[ ! -e /run/netns/perouter ]
"""


class Machine:
    """A copy of the guest's tree that may be changed."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def run(self, script: str) -> str:
        """Run a shell script inside; return what it printed, or raise :class:`GuestError`."""
        command = [*ISOLATE, "sh", "-c", ENTER, "enter", str(self.tree), script]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise GuestError(f"failed ({done.returncode}): {script.strip()[:200]}\n{done.stdout[-4000:]}")
        return done.stdout

    def snapshot(self) -> dict[str, str]:
        """Return each file with its type, owner, mode and content."""
        return {
            name: describe(path)
            for path in sorted(self.tree.rglob("*"))
            if not (name := str(path.relative_to(self.tree))).startswith(VOLATILE)
        }


def describe(path: Path) -> str:
    """Return everything about a file that a package could have changed."""
    status = path.lstat()
    content = ""
    if stat.S_ISREG(status.st_mode):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    elif stat.S_ISLNK(status.st_mode):
        content = str(path.readlink())
    return f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid} {content}"


def demand_same(before: dict[str, str], after: dict[str, str], occasion: str) -> None:
    """Raise :class:`GuestError` naming each file that appeared, vanished or changed."""
    differences = [
        f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if differences:
        raise GuestError(f"{occasion} left differences:\n" + "\n".join(differences))


def bumped(package: Path, directory: Path) -> Path:
    """Return the same package with a higher version."""
    unpacked, result = directory / "unpacked", directory / "higher.deb"
    subprocess.run(["dpkg-deb", "-R", str(package), str(unpacked)], check=True)
    control = unpacked / "DEBIAN" / "control"
    lines = control.read_text().splitlines()
    control.write_text("\n".join(line + "+1" if line.startswith("Version:") else line for line in lines) + "\n")
    subprocess.run(["dpkg-deb", "-b", str(unpacked), str(result)], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(unpacked)
    return result


def check(machine: Machine, package: str, higher: str) -> None:
    """Take the package through its life."""
    machine.run("printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d")
    clean = machine.snapshot()

    say("install")
    machine.run(INSTALL.format(package=package))
    machine.run('test -z "$(dpkg --audit)" && dpkg --verify openperouter')
    machine.run("openperouter --help >/dev/null && openperouter validate")
    # The tree has no manual pages; a test of the sources compares references and pages.
    machine.run("systemd-analyze verify --man=no openperouter.service openperouter-netns.service")
    machine.run("systemd-analyze security --no-pager --offline=true --threshold=27 openperouter.service >&2")
    kept = "CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_ADMIN"
    machine.run(f"grep -qx '{kept}' /usr/lib/systemd/system/openperouter.service")
    machine.run("test \"$(stat -c '%U:%G %a' /etc/frr/perouter/frr.conf)\" = 'root:frr 640'")
    machine.run("test -n \"$(find /usr/share/openperouter -name '*.pyc')\"")

    say("use")
    say(machine.run(USE))

    say("upgrade and downgrade, with settings and frr.conf changed by hand")
    machine.run(
        "echo 'logLevel: debug' >> /etc/openperouter/openperouter.yaml; echo '! mine' >> /etc/frr/perouter/frr.conf"
    )
    mine = machine.run("cat /etc/openperouter/openperouter.yaml /etc/frr/perouter/frr.conf")
    machine.run(INSTALL.format(package=higher))
    machine.run(INSTALL.format(package=package) + " --allow-downgrades")
    if mine != machine.run("cat /etc/openperouter/openperouter.yaml /etc/frr/perouter/frr.conf"):
        raise GuestError("an upgrade changed configuration")

    say("remove, install again, remove and purge")
    machine.run("apt-get -qq remove -y openperouter; test -e /etc/openperouter/openperouter.yaml")
    machine.run("test ! -e /usr/share/openperouter")
    machine.run(
        INSTALL.format(package=package) + "; apt-get -qq remove -y openperouter; apt-get -qq purge -y openperouter"
    )
    demand_same(clean, machine.snapshot(), "purging")

    say("purge with a router that has a NIC")
    install = INSTALL.format(package=package)
    for record in ("", RECORD_IN_RUN):
        machine.run(PURGE_WITH_ROUTER.format(install=install, purge=PURGE, record=record))
        demand_same(clean, machine.snapshot(), "purging with a router")

    say("purge with devices of others in the router's namespace")
    gone = "[ ! -e /run/netns/perouter ]; [ ! -s /tmp/errors ]"
    for directory in ("/var/lib/openperouter", "/run/openperouter"):
        purge = partial(PURGE_WITH_FOREIGN_DEVICE.format, install=install, purge=PURGE, directory=directory)
        machine.run(purge(foreign=FOREIGN) + IS_KEPT)
        machine.run(purge(foreign="") + gone)

    say("purge with a router whose NIC has no record")
    machine.run(PURGE_WITHOUT_RECORD.format(install=install, purge=PURGE))


def main() -> int:
    """Check the package given, or the one built last."""
    built = [*map(Path, sys.argv[1:]), *(ROOT / "build" / "deb").glob("*.deb")]
    if not built or os.geteuid() != 0:
        sys.stderr.write("check_install.py needs root and a package: run packaging/deb/build.py first\n")
        return 1
    try:
        tree = ensure_tree()
        with tempfile.TemporaryDirectory(prefix="openperouter-install-") as directory:
            copy = Path(directory) / "tree"
            subprocess.run(["cp", "-a", "--reflink=auto", str(tree), str(copy)], check=True)
            shutil.copyfile(built[0], copy / "root" / "it.deb")
            shutil.move(bumped(built[0], Path(directory)), copy / "root" / "higher.deb")
            check(Machine(copy), "/root/it.deb", "/root/higher.deb")
    except GuestError as error:
        say(f"FAILED: {error}")
        return 1
    say("the package installs, upgrades, and leaves nothing behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
