"""What the Debian package promises that can be seen without building it; packaging/deb/check_install.py installs it."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import tomllib
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.netlink.planning.observed import Address, NicPhase, NicRecord, SavedRoute
from config.desired import Family
from config.settings import Settings
from supervisor.cli.program import build_parser, main
from supervisor.logs import message_ids
from supervisor.operations import exit_codes
from supervisor.operations.teardown import _OF_THE_KERNEL
from supervisor.version import VERSION
from tests.packaging.programs import PACKAGING, load

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "debian"
SCRIPTS = sorted([*DEBIAN.glob("openperouter.p*[tm]"), *DEBIAN.glob("tests/[!c]*"), *PACKAGING.glob("deb/*.sh")])
CATALOG = PACKAGING / "catalog" / "openperouter.catalog"
IDENTIFIER = re.compile(r"^-- ([0-9a-f]{32})$", re.MULTILINE)
CODE = ("supervisor", "actors", "config")


def relations(field: str) -> dict[str, str]:
    """Return the packages that a field of debian/control names, with their lower bounds."""
    text = (DEBIAN / "control").read_text()
    value = re.search(rf"^{field}:((?:.*\n)(?: .*\n)*)", text, re.MULTILINE)
    assert value is not None
    found = re.findall(
        r"([a-z0-9][a-z0-9+.-]+)(?::any)?(?: \([>=]+ ([^)]+)\))?(?: <!nodoc>)?(?:,|$)", value[1].strip(), re.M
    )
    return dict(found)


def test_the_changelog_and_the_program_agree_on_the_version() -> None:
    first = (DEBIAN / "changelog").read_text().splitlines()[0]
    assert first.startswith(f"openperouter ({VERSION}) ")


def test_the_build_root_has_exactly_the_build_dependencies() -> None:
    wanted = {
        {
            "debhelper-compat": "debhelper",
            "dh-sequence-python3": "dh-python",
            "dh-sequence-bash-completion": "bash-completion",
        }.get(name, name)
        for name in relations("Build-Depends")
    }
    assert wanted == set(load("deb/buildroot.py").BUILD_DEPENDS)


def test_every_library_that_the_program_needs_is_a_dependency_with_the_same_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = relations("Depends")
    for requirement in project["dependencies"]:
        name, bound = requirement.split(">=")
        package = "python3-" + {"pyyaml": "yaml"}.get(name, name)
        assert package in packages
        assert not packages[package] or bound.startswith(packages[package])


def test_what_the_daemon_runs_of_frr_is_a_dependency_and_not_a_recommendation() -> None:
    packages = relations("Depends")
    assert packages["frr"] == "10.3"
    assert {"iproute2", "nftables"} <= packages.keys()


def test_debhelper_neither_starts_nor_stops_a_unit_and_the_scripts_only_the_daemon() -> None:
    lines = [line.strip() for line in (DEBIAN / "rules").read_text().splitlines()]
    [call] = [line for line in lines if line.startswith("dh_installsystemd")]
    assert {"--no-start", "--no-restart-after-upgrade", "--no-stop-on-upgrade"} <= set(call.split())
    for script in DEBIAN.glob("openperouter.p*[tm]"):
        assert not re.search(r"(?:start|stop) openperouter-netns", script.read_text()), script.name


def test_no_script_of_the_package_stops_frr_but_the_purge() -> None:
    for script in DEBIAN.glob("openperouter.p*[tm]"):
        acts_on_frr = re.findall(r"(?:stop|restart|kill) frr@perouter", script.read_text())
        assert bool(acts_on_frr) == (script.suffix == ".postrm"), script.name


def test_the_purge_knows_the_kernels_own_devices_as_teardown_does() -> None:
    """It runs without the program, and has a list of its own."""
    listed = re.findall(r"^ +((?:[a-z0-9_]+ \| )+[a-z0-9_]+)\) ;;$", (DEBIAN / "openperouter.postrm").read_text(), re.M)
    assert _OF_THE_KERNEL in [frozenset(names.split(" | ")) for names in listed]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts_are_valid_for_any_posix_shell(script: Path) -> None:
    done = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_installed_settings_file_changes_nothing() -> None:
    text = "\n".join(load("man/settings_file.py").lines())
    assert yaml.safe_load(text) is None


def test_each_setting_in_the_installed_file_shows_its_default() -> None:
    text = "\n".join(load("man/settings_file.py").lines())
    uncommented = "\n".join(line[1:] for line in text.splitlines() if re.match(r"#\w+: ", line))
    values = yaml.safe_load(uncommented)
    assert len(values) > 5
    assert Settings.model_validate(values) == Settings()


def help_of(*words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
        build_parser().parse_args([*words, "--help"])
    return shown.getvalue()


def test_every_command_and_every_option_is_in_the_manual_page() -> None:
    page = load("man/generate.py").pages()["openperouter.8"].replace("\\-", "-")
    verbs = re.findall(r"^    (\w+) ", help_of(), re.MULTILINE)
    assert len(verbs) > 10
    for verb in verbs:
        section = page.partition(f".SS \\fBopenperouter {verb}\\fR\n")[2].partition("\n.SS ")[0]
        options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", help_of(verb), re.MULTILINE))
        shown = set(re.findall(r"^(?:\\fB-\w\\fR, )?\\fB(--[\w-]+)", section, re.MULTILINE))
        assert options - {"--help"} == shown, verb


def test_every_exit_code_is_in_the_manual_page() -> None:
    section = load("man/generate.py").pages()["openperouter.8"].partition(".SH EXIT STATUS")[2].partition(".SH ")[0]
    assert set(re.findall(r"^\\fB(\S+)\\fR$", section, re.M)) == set(re.findall(r"^  (\d+) ", exit_codes.TABLE, re.M))


def test_every_setting_is_in_its_manual_page() -> None:
    page = load("man/generate.py").pages()["openperouter.yaml.5"]
    for name, info in Settings.model_fields.items():
        assert re.search(rf"\\fB{info.alias or name}(\[\])?\\fR", page)


def test_no_line_of_a_manual_page_is_an_unintended_macro() -> None:
    macros = {".TH", ".SH", ".SS", ".PP", ".TP", ".RS", ".RE", ".EX", ".EE", ".br", ".B", ".BR", ".I", ".IR"}
    for name, text in load("man/generate.py").pages().items():
        controls = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
        assert controls <= macros, name


def examples(page: str) -> list[str]:
    """Return the examples of a manual page as a reader sees them."""
    section = load("man/generate.py").pages()[page].partition("\n.SH EXAMPLES\n")[2].partition("\n.SH ")[0]
    return [found.replace("\\-", "-") for found in re.findall(r"^\.EX\n(.*?)^\.EE$", section, re.M | re.S)]


@pytest.mark.parametrize("page", [*sorted(path.name for path in PACKAGING.glob("man/*.[58]")), "openperouter.8"])
def test_each_manual_page_has_examples(page: str) -> None:
    assert len(examples(page)) > 1


def test_the_configuration_in_the_examples_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node, *files = examples("openperouter-files.5")
    (tmp_path / "configs").mkdir()
    (tmp_path / "node-config.yaml").write_text(node)
    for number, text in enumerate(files):
        (tmp_path / f"configs/openpe_{number}.yaml").write_text(text)
    places = {"nodeConfigFile": "node-config.yaml", "configsDir": "configs", "stateDir": "state"}
    settings = tmp_path / "openperouter.yaml"
    settings.write_text("".join(f"{key}: {tmp_path / name}\n" for key, name in places.items()))
    (tmp_path / "conf.d").mkdir()
    for number, text in enumerate(examples("openperouter.yaml.5")):
        (tmp_path / f"conf.d/{number}.yaml").write_text(text)
    assert main(["validate", "--settings", str(settings)]) == exit_codes.OK, capsys.readouterr()
    assert "warning" not in "".join(capsys.readouterr())


def shipped_pages() -> set[str]:
    """Return the names of the manual pages that the package has, as in NAME(SECTION)."""
    links = [Path(line.split()[1]).name for line in (DEBIAN / "openperouter.links").read_text().splitlines()]
    return {re.sub(r"\.(\d)$", r"(\1)", name) for name in (*load("man/generate.py").pages(), *links)}


def test_each_manual_page_that_is_referred_to_is_there() -> None:
    sources = [CATALOG, *(path for path in (PACKAGING / "systemd").rglob("*") if path.is_file())]
    referred = {path.name: set(re.findall(r"man:(\S+\(\d\))", path.read_text())) for path in sources}
    assert set().union(*referred.values()) <= shipped_pages()
    assert [name for name, pages in referred.items() if name.endswith(".service") and not pages] == []


def test_words_that_roff_would_interpret_are_escaped() -> None:
    roff = load("man/generate.py")
    assert roff.prose(".hidden") == "\\&.hidden"
    assert roff.prose("a\\b-c'd") == "a\\eb\\-c\\(aqd"
    assert roff.prose("the `key` of") == "the \\fBkey\\fR of"


def complete(*words: str) -> set[str]:
    """Return what bash offers after words, the last of which is being written."""
    script = load("completion/generate.py").completions()["openperouter.bash"]
    line = " ".join(f"'{word}'" for word in ("openperouter", *words))
    ask = f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_openperouter; printf "%s\\n" "${{COMPREPLY[@]}}"'
    bash = shutil.which("bash") or "bash"
    done = subprocess.run([bash, "-uc", f"{script}\n{ask}"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_completion_offers_commands_then_their_options_and_words() -> None:
    assert {"status", "validate", "run"} <= complete("")
    assert complete("sta") == {"status"}
    assert {"--json", "--watch"} <= complete("status", "--")
    assert {"desired", "frr", "session", "vni", "topology"} <= complete("show", "")
    assert "debug" in complete("run", "--log-level", "")


def test_completion_offers_files_where_files_are_taken() -> None:
    assert complete("validate", "RE") == {"README.md"}
    assert complete("--settings", "RE") == {"README.md"}
    assert complete("bundle", "--output", "RE") == {"README.md"}
    assert "--json" in complete("--settings", "x", "status", "--")


def test_each_event_of_the_catalog_has_one_entry_with_a_subject_and_advice() -> None:
    text = CATALOG.read_text()
    identifiers = IDENTIFIER.findall(text)
    assert len(identifiers) == len(set(identifiers))
    for entry in re.split(r"^-- ", text, flags=re.MULTILINE)[1:]:
        _, subject, *rest = entry.splitlines()
        assert subject.startswith("Subject: ")
        assert "Defined-By: openperouter" in rest
        assert len(" ".join(rest)) > 60


def test_each_event_of_the_catalog_is_one_that_the_code_logs() -> None:
    names = {value: name for name, value in vars(message_ids).items() if name.isupper()}
    assert set(IDENTIFIER.findall(CATALOG.read_text())) == set(names)
    code = "".join(file.read_text() for folder in CODE for file in (ROOT / folder).rglob("*.py"))
    assert [name for name in names.values() if f"message_ids.{name}" not in code] == []


def test_each_message_id_in_the_code_is_in_the_catalog() -> None:
    known = set(IDENTIFIER.findall(CATALOG.read_text()))
    for folder in CODE:
        for file in (ROOT / folder).rglob("*.py"):
            used = set(re.findall(r"\"([0-9a-f]{32})\"", file.read_text()))
            assert used <= known, file


def record(**changes: Any) -> NicRecord:
    fields: dict[str, Any] = {"name": "eth1", "phase": NicPhase.INSIDE, "mtu": 9000, "mac": "", "up": True, **changes}
    return NicRecord(**fields)


def test_a_nic_is_moved_only_if_it_is_still_in_the_router() -> None:
    lines = list(load("deb/return_nics.py").commands("perouter", record()))
    assert lines[0] == "if ip -n perouter link show dev eth1 >/dev/null 2>&1; then"
    assert "ip -n perouter link set dev eth1 netns $host" in lines[1]


def test_a_nic_gets_its_addresses_before_its_routes() -> None:
    addresses = (Address(ip_interface("192.0.2.5/24")), Address(ip_interface("2001:db8::5/64"), flags=0x282))
    routes = (SavedRoute(Family.IPV4, "0.0.0.0/0", 254, "192.0.2.1", flags=4), SavedRoute(Family.IPV6, "::/0", 100))
    lines = list(load("deb/return_nics.py").restoring(record(addresses=addresses, routes=routes, altnames=("enp1s0",))))
    assert lines == [
        "-4 address add 192.0.2.5/24 broadcast 192.0.2.255 dev eth1 scope 0",
        "-6 address add 2001:db8::5/64 dev eth1 scope 0 nodad noprefixroute",
        "link set dev eth1 mtu 9000 group 0 up",
        "link property add dev eth1 altname enp1s0",
        "-6 route add ::/0 dev eth1 table 100 proto 3",
        "-4 route add 0.0.0.0/0 dev eth1 table 254 via 192.0.2.1 proto 3 scope 0 onlink",
    ]


def test_a_point_to_point_address_keeps_its_peer() -> None:
    address = Address(ip_interface("192.0.2.5/32"), peer="192.0.2.9")
    [line, _] = load("deb/return_nics.py").restoring(record(addresses=(address,)))
    assert line == "-4 address add 192.0.2.5 peer 192.0.2.9/32 dev eth1 scope 0"


def test_an_address_keeps_broadcast_and_label() -> None:
    none = Address(ip_interface("192.0.2.5/24"), broadcast="", label="eth1:2")
    odd = Address(ip_interface("192.0.3.5/24"), broadcast="192.0.3.0")
    lines = list(load("deb/return_nics.py").restoring(record(addresses=(none, odd))))
    assert lines[:2] == [
        "-4 address add 192.0.2.5/24 dev eth1 label eth1:2 scope 0",
        "-4 address add 192.0.3.5/24 broadcast 192.0.3.0 dev eth1 scope 0",
    ]


def test_a_nic_whose_journal_was_lost_does_not_keep_the_routers_group() -> None:
    [line, *_] = load("deb/return_nics.py").restoring(record(group=4242, up=False))
    assert line == "link set dev eth1 mtu 9000 group 0 down"


def test_what_the_kernel_makes_by_itself_is_left_to_it() -> None:
    own = Address(ip_interface("fe80::5054:ff:fe12:3456/64"), scope=253)
    set_by_hand = Address(ip_interface("fe80::1/64"), scope=253)
    lines = list(load("deb/return_nics.py").restoring(record(mac="52:54:00:12:34:56", addresses=(own, set_by_hand))))
    assert [line for line in lines if "address add" in line] == ["-6 address add fe80::1/64 dev eth1 scope 253"]


def test_a_nic_keeps_its_hardware_address() -> None:
    text = "\n".join(load("deb/return_nics.py").commands("perouter", record(mac="52:54:00:12:34:56")))
    assert "ip link set dev eth1 address 52:54:00:12:34:56" in text


def test_a_name_that_means_something_to_a_shell_stays_a_name() -> None:
    text = load("deb/return_nics.py").script("perouter", "boot", {"x": record(name="$(reboot)")})
    assert "dev '$(reboot)'" in text
    assert "dev $(reboot)" not in text


def test_the_record_of_another_boot_is_not_carried_out() -> None:
    text = load("deb/return_nics.py").script("perouter", "another-boot", {"eth1": record()})
    done = subprocess.run(["sh", "-xeu"], input=text, capture_output=True, text=True, check=True)
    assert "ip link" not in done.stderr
