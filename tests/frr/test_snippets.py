"""What real vtysh does with raw snippets that are accepted: it stays in configuration mode and touches no file.

Commands come from vtysh's own grammar (``list``), in every context, whole and abbreviated.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from config.settings import Settings
from config.syntax.frr_snippets import SnippetError, canonical
from supervisor.cli import main
from tests.actors.frr.cases import RED, raw, state, underlay

from .harness import ETC, FrrInstance
from .test_apply import Bench

#: How each context is opened; "" is configuration mode itself.
CONTEXTS = (
    "", "router bgp 64999", "router bgp 64999\n address-family ipv4 unicast",
    "router bgp 64999\n address-family l2vpn evpn", "vrf own", "interface lo", "route-map OWN permit 10",
    "bfd", "bfd\n profile own", "line vty", "key chain own", "segment-routing", "segment-routing\n srv6",
    "nexthop-group own", "pbr-map own seq 1", "mpls ldp", "router ospf", "rpki",
)  # fmt: skip
#: Only outside of configuration mode; it prints FRR's version.
SENTINEL = "show version"
CANARY = "canary-in-a-file"
#: Not the snippet's doing: vtysh keeps a history of the commands that the test itself gives it, and other lanes of the
#: suite write to the checkout, which is read-only in here, and to the results.
OTHERS = ("proc", ".history_frr", "root", "checkout", "results")
VICTIM = (
    "ip prefix-list VICTIM seq 5 permit 192.0.2.0/24",
    "route-map VICTIM permit 1",
    " match metric 7",
    "vrf victim",
    " ip route 192.0.2.0/24 blackhole",
)


def lines_of(frr: FrrInstance, *commands: str) -> list[str]:
    """Return the commands of a mode or context, as vtysh lists them."""
    options = [option for command in (*commands, "list") for option in ("-c", command)]
    done = subprocess.run(["vtysh", "-N", frr.name, *options], capture_output=True, text=True, check=False)
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]


@dataclass(frozen=True)
class Bed:
    """An FRR, its grammar, and a directory in which any file that a command names is."""

    frr: FrrInstance
    watched: Path
    outside: list[str]
    inside: list[str]

    def files(self) -> dict[str, tuple[int, int, int]]:
        """Return what changes when a file is written or made."""
        places = (self.watched, ETC, Path("/"), Path("/root"), Path("/tmp"), Path("/var/tmp"))
        entries = (path for place in places for path in (place, *place.glob("*"), *(ETC / self.frr.name).glob("*")))
        return {
            str(path): (path.stat().st_ino, path.stat().st_size, path.stat().st_mtime_ns)
            for path in entries
            if path.exists() and path != self.watched.parent and path.name not in OTHERS
        }

    def load(self, text: str, *options: str) -> str:
        path = self.watched.parent / "snippet.conf"
        path.write_text(text)
        command = ["vtysh", "-N", self.frr.name, *options, "-f", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=self.watched)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def bed(shared_frr: FrrInstance, tmp_path_factory: pytest.TempPathFactory) -> Bed:
    watched = tmp_path_factory.mktemp("snippets") / "watched"
    watched.mkdir()
    (watched / "file").write_text(f"{CANARY}\n")
    outside = lines_of(shared_frr)
    inside: set[str] = set()
    for context in CONTEXTS:
        inside.update(lines_of(shared_frr, "configure terminal", *(line.strip() for line in context.splitlines())))
    return Bed(shared_frr, watched, outside, sorted(inside))


def accepted(text: str) -> str | None:
    try:
        return canonical(text)
    except SnippetError:
        return None


def instance(command: str, file: str) -> str:
    """Return one command of a line of vtysh's grammar."""
    text = re.sub(r"\{([^{}|]*)[^{}]*\}", r"\1", re.sub(r"^\[no\] ", "", command))
    for _ in range(6):
        text = re.sub(r"!?\[[^][]*\]", "", text)
        text = re.sub(r"<([^<>|]*)[^<>]*>", r"\1", text)
    text = re.sub(r"\((\d+)-\d+\)", r"\1", text)
    for token, value in (("A.B.C.D/M", "192.0.2.0/24"), ("A.B.C.D", "192.0.2.1"), ("X:X::X:X/M", "2001:db8::/64")):
        text = text.replace(token, value)
    return re.sub(r"\b[A-Z][A-Z0-9_]+\b(\.\.\.)?", file, text.replace("X:X::X:X", "2001:db8::1"))


def test_what_exists_only_outside_of_configuration_mode_is_refused(bed: Bed) -> None:
    assert len(bed.outside) > 500
    assert len(bed.inside) > 1000
    configuring = {line.removeprefix("[no] ").split()[0] for line in bed.inside}
    only_outside = {line.removeprefix("[no] ").split()[0] for line in bed.outside} - configuring
    assert {"configure", "copy", "write"} <= only_outside
    # Of OSPF, which has it as configuration as well.
    assert [word for word in sorted(only_outside) if accepted(f"{word} x")] in ([], ["graceful-restart"])


def test_what_names_a_file_is_refused(bed: Bed) -> None:
    named = [line for line in (*bed.outside, *bed.inside) if re.search(r"\b(FILENAME|FILE|PATH|SCRIPT)\b", line)]
    assert len(named) > 10
    assert [line for line in named if accepted(instance(line, str(bed.watched / "new")))] == []


NOISE = st.sampled_from(["", "", "", "", " ", "\t", "!", "#", "\x0b", "\x0c", "no ", "do ", "\r", "\xa0", "\x00"])
ENDS = st.sampled_from(["", "", "", " ", "\r", "!", " x"])
ESCAPES = st.sampled_from(
    ["exit", "quit", "end", "exit-vrf", "exit-address-family", "write memory", "copy {} running-config",
     "output file {}", "log file {}", "configure terminal", "enable", "disable", "list", "show running-config",
     "router zzz 1", "vrf own"]
)  # fmt: skip


@st.composite
def snippets(draw: st.DrawFn, bed: Bed) -> str:
    """Draw lines of vtysh's grammar and ways out of it, each word perhaps abbreviated, in contexts."""
    file = str(bed.watched / "file")
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            lines += draw(st.sampled_from(CONTEXTS)).splitlines()
        source = draw(st.sampled_from([ESCAPES, st.sampled_from(bed.outside), st.sampled_from(bed.inside)]))
        words = instance(draw(source).replace("{}", file), file).split()
        if draw(st.booleans()):
            words = [word[: draw(st.integers(1, len(word)))] if "/" not in word else word for word in words]
        lines.append(draw(NOISE) + " ".join(words) + draw(ENDS))
    return "\n".join(lines)


def test_an_accepted_snippet_stays_in_configuration_mode_and_touches_no_file(bed: Bed) -> None:
    counts = {"accepted": 0}

    @settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
    @given(snippets(bed))
    def check(text: str) -> None:
        written = accepted(text)
        if written is None:
            return
        counts["accepted"] += 1
        before = bed.files()
        answer = bed.load(f"{written}{SENTINEL}\n", "-C")
        assert "FRRouting" not in answer, written
        assert CANARY not in answer, written
        assert bed.files() == before, written

    check()
    assert counts["accepted"] > 50


#: Of the grammar of the daemons that run here, and harmless to them; OWN and 64999 are the snippet's own.
HARMLESS = st.sampled_from(
    ["router bgp 64999", " neighbor 192.0.2.7 remote-as 64998", " address-family ipv4 unicast",
     "  network 192.0.2.0/24", "vrf own", " vni 77", " ip route 198.51.100.0/24 blackhole", "interface lo",
     " description own", "exit", "exit-vrf", "exit-address-family", "route-map OWN permit 1", " match metric 8",
     "bfd", " profile own", "router zzz", "end", "qui", "ip prefix-list OWN seq 5 permit 203.0.113.0/24",
     "write memory", "no ip prefix-list OWN", "  florp", "exi"]
)  # fmt: skip


def test_an_accepted_snippet_changes_nothing_of_others(bed: Bed) -> None:
    bed.load("".join(f"{line}\n" for line in VICTIM))
    sent = []

    def victims() -> set[str]:
        lines = bed.frr.vtysh("show running-config").splitlines()
        return {line for line in VICTIM if line in lines}

    assert victims() == set(VICTIM)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(HARMLESS, min_size=1, max_size=8).map("\n".join))
    def check(text: str) -> None:
        written = accepted(text)
        if written is None:
            reject()  # Another one is drawn in its place, so that enough of them get through.
        sent.append(written)
        before = bed.files()
        answer = bed.load(f"{written}{SENTINEL}\n")
        assert "FRRouting" not in answer, written
        assert victims() == set(VICTIM), written
        assert bed.files() == before, written

    check()
    assert len(sent) > 10


async def test_a_snippet_that_frr_refuses_costs_another_nothing(frr: FrrInstance, settings: Settings) -> None:
    """In a context that it did not open, FRR ends its reading at ``exit``."""
    bench = Bench(frr, settings)
    lost = raw("a", "router bgp 65000\n neighbor 192.0.2.9 remote-as 65001\nexit\nip prefix-list A seq 5 permit any\n")
    good = raw("b", "ip prefix-list B seq 5 permit any\nroute-map B permit 5\nexit\nip prefix-list C seq 5 permit any")
    outcome = await bench.apply(state(underlay=underlay(), l3vnis=(RED,), raw_frr=(lost, good)))
    assert outcome.applied, outcome.error
    assert [failure.resource for failure in outcome.failures] == [lost.resource]
    running = await bench.driver.running()
    assert "ip prefix-list C seq 5 permit any" in running
    assert "prefix-list A" not in running


async def test_an_unknown_command_is_named_by_its_snippet_alone(frr: FrrInstance, settings: Settings) -> None:
    bench = Bench(frr, settings)
    answer = await bench.driver.refusal("hostname x\nflorp hush-hush\n")
    assert answer.startswith("line 2: % Unknown command")
    assert "hush" not in answer
    unknown = raw("a", "router bgp 64514\n neighbor 192.168.11.2 florp hush-hush\n")
    outcome = await bench.apply(state(underlay=underlay(), raw_frr=(unknown,)))
    assert [failure.resource for failure in outcome.failures] == [unknown.resource]
    assert outcome.failures[0].message.count("hush-hush") == 1


def test_validate_names_the_lines_that_vtysh_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings_file = tmp_path / "openperouter.yaml"
    (tmp_path / "configs").mkdir()
    settings_file.write_text(f"configsDir: {tmp_path}/configs\nnodeConfigFile: {tmp_path}/node-config.yaml\n")
    (tmp_path / "node-config.yaml").write_text("nodeIndex: {index: 0}\n")
    path = tmp_path / "configs" / "openpe_raw.yaml"
    lines = ("this is not frr", "router bgp 64514", " neighbor 192.0.2.1 remote-as 64512", " neighbour 192.0.2.1")
    path.write_text("rawfrrconfigs:\n  - priority: 1\n    rawConfig: |\n" + "".join(f"      {one}\n" for one in lines))
    path.chmod(0o600)
    assert main(["--settings", str(settings_file), "validate"]) == 78
    shown = capsys.readouterr().out
    assert "FRR does not take this line (unknown command): this is not frr\n" in shown
    assert "FRR does not take this line (unknown command): neighbour 192.0.2.1\n" in shown
    assert "2 errors" in shown
