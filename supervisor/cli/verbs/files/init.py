"""``openperouter init``: a first configuration from a few answers: beside the watched directory, checked, planned."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from supervisor.operations import exit_codes
from supervisor.operations.exit_codes import CommandError
from supervisor.operations.paths import load_usable_settings

from ...options import StoreFile, add_quiet, add_verb
from ...terminal import print_line, say

if TYPE_CHECKING:
    from config.settings import Settings

DEFAULT_DIRECTORY: Final = Path("openperouter-staging")
DEFAULT_POOL: Final = "100.65.0.0/16"
UNDERLAY_FILE: Final = "openpe_underlay.yaml"
TENANT: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,14}):(\d{1,8})")
SYS_CLASS_NET: Final = Path("/sys/class/net")
ROUTES: Final = Path("/proc/net/route")
#: The router's own devices in the host.
OURS: Final = re.compile(r"lo|host-e-\d+|br-hs-\d+|pt-host")

DESCRIPTION: Final = (
    "Write a first configuration: an underlay with EVPN, and a tenant's network if one is named. On a terminal "
    "it asks for what no option gives, and shows the switches that lldpd reports, if it runs. The router files go "
    "into DIRECTORY, which the daemon does not read: try them or copy them. "
    "node-config.yaml is written where the daemon reads it, unless it exists: alone "
    "it configures nothing. Then the files are checked and their plan is shown; --try applies them until they are "
    "confirmed. Refuses where the router is configured already. Exits with 0 when the files are written and valid, "
    "with 64 when an answer is missing or not usable, with 78 when the configuration has errors, with 69 when it could "
    "not be planned, and with --try as 'openperouter try' does."
)


@dataclass
class Answers:
    """What a first configuration needs to know. No ``neighbors``: the sessions are unnumbered, one a NIC."""

    nics: Sequence[str]
    asn: int
    neighbors: Sequence[str] = ()
    neighbor_asn: int | None = None
    index: int | None = None
    pool: str = DEFAULT_POOL
    tenant: tuple[str, int] | None = None
    tenant_pool: str = ""
    host_asn: int | None = None


@dataclass(frozen=True)
class Nic:
    """A NIC that may lead to the fabric, with what to know before it leaves the host."""

    name: str
    default_route: bool = False

    def __str__(self) -> str:
        return (
            f"{self.name} (has the host's default route: your connection may need it)"
            if self.default_route
            else self.name
        )


def _wrong_addresses(text: str) -> str:
    for one in text.split():
        try:
            ip_address(one)
        except ValueError:
            return f"{one} is not an address, such as 192.0.2.1 or 2001:db8::1"
    return ""


def _wrong_network(text: str) -> str:
    try:
        ip_network(text, strict=False)
    except ValueError:
        usable = False
    else:
        usable = "/" in text
    return "" if usable or not text else f"{text} is not a network, such as 192.0.2.0/24 or 2001:db8::/64"


def _wrong_tenant(text: str) -> str:
    tenant = TENANT.fullmatch(text)
    if text and not tenant:
        return f"{text}: a tenant is NAME:VNI, such as red:100"
    # Each tenant has a file of its own.
    if tenant and _file_name(tenant[1]) == UNDERLAY_FILE:
        return f"{text}: {UNDERLAY_FILE} is the underlay's file; take another name, such as red:100"
    return ""


def _file_name(word: str) -> str:
    return f"openpe_{word}.yaml"


@dataclass
class Questions:
    """Asks for what no option gives; elsewhere than on a terminal, collects the options that are missing."""

    on_terminal: bool
    ask: Callable[[str], str] = input
    missing: list[str] = field(default_factory=list)

    def answer(
        self,
        given: Any,
        option: str,
        question: str,
        default: str | None = None,
        wrong: Callable[[str], str] = lambda _: "",
    ) -> str:
        """Return an option's value, else the answer, else the default. An empty answer takes the default.

        ``wrong`` returns what is wrong with a text, or nothing: then an answer is asked for again, and an option's
        value is a :class:`CommandError`.
        """
        if given is not None:
            if fault := wrong(str(given)):
                raise CommandError(f"{option}: {fault}", exit_codes.USAGE)
            return str(given)
        if not self.on_terminal:
            if default is None:
                self.missing.append(option)
            return default or ""
        shown = f" [{default}]" if default else ""
        while True:
            answer = self.ask(f"{question}{shown}: ").strip() or default
            if answer is None:
                continue
            if not (fault := wrong(answer)):
                return answer
            print(fault)

    def number(self, given: Any, option: str, question: str, default: str | None = None) -> int:
        """Return a whole number; any other answer is asked for again. 0 stands for an option that is missing."""
        if given is not None:
            return int(given)
        while True:
            text = self.answer(None, option, question, default)
            if text.isascii() and text.isdecimal():
                return int(text)
            if not self.on_terminal:
                return 0
            print(f"{text!r} is not a whole number")


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = add_verb(verbs, "init", run, summary="write a first configuration and plan it", description=DESCRIPTION)
    parser.add_argument("--nic", action="append", metavar="NAME", help="NIC to the fabric; may be repeated")
    parser.add_argument("--asn", type=int, metavar="N", help="the router's AS number")
    peers = parser.add_mutually_exclusive_group()
    peers.add_argument("--neighbor", action="append", metavar="ADDRESS", help="the leaf's address; may be repeated")
    peers.add_argument("--unnumbered", action="store_true", help="an unnumbered session on each NIC")
    parser.add_argument(
        "--neighbor-asn", type=int, metavar="N", help="the leaves' AS number (default: any other than ours)"
    )
    parser.add_argument("--index", type=int, metavar="N", help="the node's index, unique in the fabric, from 0")
    parser.add_argument("--pool", metavar="CIDR", help=f"pool of tunnel endpoints (default: {DEFAULT_POOL})")
    parser.add_argument("--tenant", metavar="NAME:VNI", help="a first L3VNI; its VRF has its name")
    parser.add_argument(
        "--tenant-pool", metavar="CIDR", help="addresses of its BGP session with the host; absent: none"
    )
    parser.add_argument(
        "--host-asn", type=int, metavar="N", help="the host's AS number in it (default: one above ours)"
    )
    parser.add_argument("--try", action="store_true", dest="try_it", help="try the configuration afterwards")
    add_quiet(parser, "print only questions and errors, not what is written and planned")
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        action=StoreFile,
        default=DEFAULT_DIRECTORY,
        metavar="DIRECTORY",
        help=f"a new or empty directory (default: {DEFAULT_DIRECTORY} here)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask, write, check, plan, and try if that is wanted."""
    from actors.static_config.trial import TrialError
    from supervisor.operations.candidate import gather

    from . import plan, try_

    settings = load_usable_settings(arguments.settings)
    _refuse(settings, arguments.directory)
    try:
        answers = collect(arguments, Questions(sys.stdin.isatty()), settings)
    except EOFError:
        raise CommandError("the input ended; nothing is written", exit_codes.USAGE) from None
    for path in write(answers, arguments.directory, settings.node_config_file):
        say(f"written: {path}")
    code = plan.show_candidate(gather(settings, [arguments.directory]), settings, arguments.settings)
    if code == exit_codes.CONFIG:
        say("")
        say(f"correct the files, then: openperouter try {arguments.directory}")
        return code
    if arguments.try_it:
        try:
            return try_.try_files(settings, arguments.settings, [arguments.directory])
        except TrialError as error:
            raise CommandError(str(error), exit_codes.DEGRADED) from None
    say("")
    say(f"nothing is in force yet; next: openperouter try {arguments.directory}")
    return exit_codes.UNAVAILABLE if code == exit_codes.UNAVAILABLE else exit_codes.OK


def _refuse(settings: Settings, directory: Path) -> None:
    from config.sources.static_files import is_router_file
    from config.syntax.files import list_directory

    there = [name for name in list_directory(settings.configs_dir) if is_router_file(name)]
    if there:
        what = f"{settings.configs_dir / there[0]} configures the router already; edit a copy and use openperouter try"
        raise CommandError(what, exit_codes.USAGE)
    if directory.resolve() == settings.configs_dir.resolve():
        what = f"{directory} is the watched directory: its files take effect at once; give another one"
        raise CommandError(what, exit_codes.USAGE)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CommandError(f"{directory} exists and is not an empty directory", exit_codes.USAGE)


def collect(arguments: argparse.Namespace, questions: Questions, settings: Settings) -> Answers:
    """Return the answers from options and questions; raise :class:`CommandError` when some are missing."""
    nics = arguments.nic or _choose_nics(questions)
    answers = Answers(nics, questions.number(arguments.asn, "--asn", "The router's AS number"))
    if not arguments.unnumbered:
        given = " ".join(arguments.neighbor) if arguments.neighbor else None
        question = "Address of the leaf (empty: unnumbered session)"
        answers.neighbors = questions.answer(given, "--neighbor", question, "", _wrong_addresses).split()
    answers.neighbor_asn = arguments.neighbor_asn
    answers.pool = questions.answer(arguments.pool, "--pool", "Pool of tunnel endpoints", DEFAULT_POOL, _wrong_network)
    if not settings.node_config_file.exists():
        answers.index = questions.number(arguments.index, "--index", "This node's index, unique in the fabric")
    elif arguments.index is not None:
        raise CommandError(f"{settings.node_config_file} exists: --index would not change it", exit_codes.USAGE)
    question = "First tenant as NAME:VNI (empty: none)"
    tenant = TENANT.fullmatch(questions.answer(arguments.tenant, "--tenant", question, "", _wrong_tenant))
    if tenant:
        answers.tenant = tenant[1], int(tenant[2])
        pool = "Addresses of its session with the host, such as 192.168.100.0/24 (empty: no session)"
        answers.tenant_pool = questions.answer(arguments.tenant_pool, "--tenant-pool", pool, "", _wrong_network)
    answers.host_asn = arguments.host_asn
    if not questions.on_terminal and not (arguments.neighbor or arguments.unnumbered):
        questions.missing.append("--neighbor or --unnumbered")
    if questions.missing:
        what = f"give {', '.join(questions.missing)} (without a terminal nothing can be asked); nothing is written"
        raise CommandError(what, exit_codes.USAGE)
    return answers


def _choose_nics(questions: Questions) -> list[str]:
    default = _show_nics() if questions.on_terminal else None
    question = "NICs to the fabric, which move into the router"
    return questions.answer(None, "--nic", question, default or None).replace(",", " ").split()


def _show_nics() -> str:
    """Print the NICs with a carrier; return those that LLDP found a neighbour of and the host can spare."""
    from supervisor.operations.lldp import neighbors

    found = nics_with_carrier()
    known = {one.interface: one for one in neighbors()} if found else {}
    print("NICs with a carrier:" if found else "no NIC has a carrier")
    for nic in found:
        print_line(f"  {nic}{f', to {known[nic.name]} (LLDP)' if nic.name in known else ''}")
    return " ".join(nic.name for nic in found if nic.name in known and not nic.default_route)


def nics_with_carrier(devices: Path = SYS_CLASS_NET, routes: Path = ROUTES) -> list[Nic]:
    """Return the host's interfaces with a link that can become the router's."""
    default = {words[0] for line in routes.read_text().splitlines() if (words := line.split())[1:2] == ["00000000"]}
    names = sorted(path.name for path in devices.iterdir() if not OURS.fullmatch(path.name))
    return [Nic(name, name in default) for name in names if _carries(devices / name)]


def _carries(device: Path) -> bool:
    try:
        return (device / "carrier").read_text().strip() == "1" and not (device / "bridge").exists()
    except OSError:
        # The kernel refuses to say it of an interface that is down (net/core/net-sysfs.c).
        return False


def write(answers: Answers, directory: Path, node_config: Path) -> list[Path]:
    """Write the files; return their paths."""
    from supervisor.operations.documents import to_yaml

    texts = {directory / UNDERLAY_FILE: to_yaml(underlay(answers))}
    if answers.tenant:
        texts[directory / _file_name(answers.tenant[0])] = to_yaml(tenant_network(answers, *answers.tenant))
    if answers.index is not None:
        texts[node_config] = to_yaml({"nodeIndex": {"index": answers.index}})
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
        path.chmod(0o600)
    return list(texts)


def underlay(answers: Answers) -> Mapping[str, Any]:
    """Return the content of the underlay's file."""
    remote: dict[str, Any] = {"asn": answers.neighbor_asn} if answers.neighbor_asn else {"type": "External"}
    ends = [{"address": one} for one in answers.neighbors] or [{"interface": name} for name in answers.nics]
    interfaces = [{"type": "NetworkDevice", "networkDevice": {"interfaceName": name}} for name in answers.nics]
    one = {
        "asn": answers.asn,
        "interfaces": interfaces,
        "neighbors": [{**remote, **end} for end in ends],
        "tunnelEndpoint": {"cidrs": [answers.pool]},
    }
    return {"underlays": [one]}


def tenant_network(answers: Answers, name: str, vni: int) -> Mapping[str, Any]:
    """Return the content of the first tenant's file."""
    one: dict[str, Any] = {"name": name, "vrf": name, "vni": vni}
    if answers.tenant_pool:
        family = "ipv6" if ":" in answers.tenant_pool else "ipv4"
        host = answers.host_asn or answers.asn + 1
        one["hostSession"] = {"asn": answers.asn, "hostASN": host, "localCIDR": {family: answers.tenant_pool}}
    return {"l3vnis": [one]}
