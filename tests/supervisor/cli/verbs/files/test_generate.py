"""``openperouter generate nodes``: each node's files, what is refused, and what is compared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.cli.program import build_parser, main
from supervisor.operations import exit_codes

EXAMPLE = Path(__file__).resolve().parents[5] / "packaging/examples/fleet"
UNDERLAY = "configs/openpe_underlay.yaml"


class Fleet:
    """A copy of the example, and where its files go."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.inventory = shutil.copytree(EXAMPLE, directory / "fleet") / "inventory.yaml"
        self.underlay = self.inventory.with_name("openpe_underlay.yaml")
        self.out = directory / "out"
        self._capsys = capsys

    def generate(self, *options: str, out: Path | None = None) -> tuple[int, str]:
        """Run it; return the exit code and all that it says."""
        code = main(["generate", "nodes", str(self.inventory), str(out or self.out), *options])
        said = self._capsys.readouterr()
        return code, said.out + said.err

    def change(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def line(self, path: Path, text: str) -> int:
        """Return the number of the first line with a text."""
        return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line)

    def load(self, name: str) -> Any:
        return yaml.safe_load((self.out / name).read_text())


@pytest.fixture
def fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fleet:
    return Fleet(tmp_path, capsys)


def test_each_node_has_its_own_values(fleet: Fleet) -> None:
    code, said = fleet.generate()
    assert (code, said.count("written: ")) == (0, 12)
    assert fleet.load("node-c/node-config.yaml") == {
        "nodeName": "node-c",
        "nodeIndex": {"index": 2},
        "routerIDScheme": "v2",
    }
    [underlay] = fleet.load(f"node-c/{UNDERLAY}")["underlays"]
    assert underlay["neighbors"] == [{"asn": 64512, "address": "192.168.13.2"}]
    assert underlay["interfaces"][0]["networkDevice"] == {"interfaceName": "enp3s0"}
    assert fleet.load("node-a/conf.d/50-inventory.yaml") == {"autoApply": False}
    assert {path.stat().st_mode & 0o777 for path in fleet.out.rglob("*.yaml")} == {0o600}
    assert fleet.out.stat().st_mode & 0o777 == 0o700


def test_the_daemon_finds_no_fault_in_them(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.generate()
    node = fleet.out / "node-b"
    settings = fleet.out.parent / "openperouter.yaml"
    settings.write_text(
        f"nodeConfigFile: {node}/node-config.yaml\nconfigsDir: {node}/configs\nstateDir: {fleet.out.parent}/state\n"
    )
    assert main(["validate", "--settings", str(settings)]) == exit_codes.OK
    assert capsys.readouterr().out == "valid: 2 resources\n"


def test_only_what_changed_is_written_and_what_left_is_removed(fleet: Fleet) -> None:
    fleet.generate()
    assert fleet.generate() == (0, f"{fleet.out} is as it should be\n")
    fleet.change(fleet.inventory, "leaf: 192.168.12.2", "leaf: 192.168.12.3")
    assert fleet.generate() == (0, f"written: {fleet.out}/node-b/{UNDERLAY}\n")
    text = fleet.inventory.read_text()
    fleet.inventory.write_text(text[: text.index("  - name: node-b")])
    code, said = fleet.generate()
    assert (code, said.count("removed: ")) == (0, 8)
    assert sorted(path.name for path in fleet.out.iterdir() if path.is_dir()) == ["node-a"]


def test_quiet_writes_and_compares_without_a_word(fleet: Fleet) -> None:
    assert fleet.generate("-q") == (0, "")
    assert fleet.generate("--check", "-q") == (0, "")
    (fleet.out / "node-a" / UNDERLAY).write_text("edited\n")
    assert fleet.generate("--check", "--quiet") == (exit_codes.PENDING, "")
    fleet.change(fleet.inventory, "leaf: 192.168.12.2", "leaf: nowhere")
    code, said = fleet.generate("-q")
    assert code == exit_codes.CONFIG
    assert ": error: " in said
    assert "warning" not in said


def test_what_tools_keep_there_stays(fleet: Fleet) -> None:
    fleet.generate()
    (fleet.out / ".git/refs").mkdir(parents=True)
    assert fleet.generate("--check") == (0, f"{fleet.out} is as it should be\n")
    fleet.generate()
    assert (fleet.out / ".git/refs").is_dir()


def test_check_names_what_differs_and_writes_nothing(fleet: Fleet) -> None:
    fleet.generate()
    (fleet.out / "node-a" / UNDERLAY).write_text("edited\n")
    (fleet.out / "node-b" / UNDERLAY).unlink()
    (fleet.out / "node-c/configs/openpe_other.yaml").write_text("other\n")
    code, said = fleet.generate("--check")
    assert code == exit_codes.PENDING
    assert said.splitlines() == [
        f"differs: {fleet.out}/node-a/{UNDERLAY}",
        f"missing: {fleet.out}/node-b/{UNDERLAY}",
        f"not of the inventory: {fleet.out}/node-c/configs/openpe_other.yaml",
    ]
    assert (fleet.out / "node-a" / UNDERLAY).read_text() == "edited\n"


def test_a_node_compares_what_is_installed(fleet: Fleet, tmp_path: Path) -> None:
    fleet.generate()
    installed = shutil.copytree(fleet.out / "node-b", tmp_path / "etc")
    # Files of others, and what is the node's own affair.
    (installed / "openperouter.yaml").write_text("")
    (installed / "conf.d/90-own.yaml").write_text("")
    assert fleet.generate("--check", "--node", "node-b", out=installed)[0] == 0
    (installed / "configs/openpe_old.yaml").write_text("")
    code, said = fleet.generate("--check", "--node", "node-b", out=installed)
    assert (code, said) == (exit_codes.PENDING, f"not of the inventory: {installed}/configs/openpe_old.yaml\n")
    assert fleet.generate("--check", "--node", "node-x", out=installed)[0] == exit_codes.CONFIG
    assert fleet.generate("--node", "node-b", out=installed)[0] == exit_codes.USAGE


def test_cloud_init_gets_the_same_files(fleet: Fleet) -> None:
    fleet.generate()
    user_data = fleet.out.with_name("cloud")
    assert fleet.generate("--format", "cloud-init", out=user_data)[0] == 0
    text = (user_data / "node-a.yaml").read_text()
    assert text.startswith("#cloud-config\n")
    written = {one["path"]: one["content"] for one in yaml.safe_load(text)["write_files"]}
    node = fleet.out / "node-a"
    paths = [path for path in node.rglob("*") if path.is_file()]
    assert written == {f"/etc/openperouter/{path.relative_to(node)}": path.read_text() for path in paths}
    assert {one["permissions"] for one in yaml.safe_load(text)["write_files"]} == {"0600"}
    assert fleet.generate("--format", "cloud-init", "--check", out=user_data)[0] == 0


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        ("    index: 1", "    index: 0", "    index: 0\n    values: {nic: eth1, leaf: 192.168.12.2}", "as well"),
        ("name: node-b", "name: node-a", "", "nodes[1].name: is that of"),
        ("index: 2", "index: two", "index: two", "nodes[2].index"),
        ("name: node-c", "name: ../c", "name: ../c", "nodes[2].name"),
        ("autoApply: false", "autoAply: false", "autoAply", "autoAply"),
        ("asn: 64514", "index: 5", "index: 5", "each node has this value: its own"),
        ("  - openpe_red.yaml", "  - openpe_no.yaml", "", "openpe_no.yaml: error: does not exist"),
        ("  - openpe_red.yaml", "  - inventory.yaml", "", "is not a router file: its name must be openpe_*.yaml"),
        ("  - openpe_red.yaml", "  - openpe_red.yaml\n  - ./openpe_red.yaml", "", "two files are called openpe_red"),
    ],
)
def test_a_wrong_inventory_is_refused_with_its_line(fleet: Fleet, old: str, new: str, at: str, says: str) -> None:
    fleet.change(fleet.inventory, old, new)
    code, said = fleet.generate()
    assert code == exit_codes.CONFIG
    assert says in said
    if at and "\n" not in at:
        assert f"{fleet.inventory}:{fleet.line(fleet.inventory, at)}:" in said
    assert said.endswith("openperouter: nothing is written\n")
    assert not fleet.out.exists()


def test_a_value_that_a_node_lacks_is_named_with_its_place(fleet: Fleet) -> None:
    fleet.change(fleet.inventory, "nic: enp3s0, ", "")
    code, said = fleet.generate()
    line = fleet.line(fleet.underlay, "${nic}")
    assert code == exit_codes.CONFIG
    assert said.splitlines()[0] == f"{fleet.underlay}:{line}:26: error: node node-c: there is no value nic"


def test_what_a_node_would_refuse_is_refused_with_the_nodes_name(fleet: Fleet) -> None:
    fleet.change(fleet.inventory, "leaf: 192.168.12.2", "leaf: 192.168.12.2222")
    code, said = fleet.generate()
    assert code == exit_codes.CONFIG
    line = fleet.line(fleet.underlay, "${leaf}")
    [complaint] = [one for one in said.splitlines() if one.startswith(f"{fleet.underlay}:{line}:")]
    assert "node node-b: " in complaint
    assert "2222" not in said


def test_an_index_that_does_not_fit_a_pool_is_refused(fleet: Fleet) -> None:
    fleet.change(fleet.inventory, "index: 2", "index: 2000")
    code, said = fleet.generate()
    assert code == exit_codes.CONFIG
    assert "node node-c: " in said
    assert "node node-a: " not in said


def test_lists_dollars_and_lines(fleet: Fleet) -> None:
    fleet.underlay.write_text(fleet.underlay.read_text().replace("- 100.65.0.0/24", "") + "# $$5 $x\n")
    fleet.change(fleet.underlay, "      cidrs:\n", "      cidrs: ${pools}\n")
    fleet.change(fleet.inventory, "  asn: 64514", "  asn: 64514\n  pools: [100.65.0.0/24]")
    assert fleet.generate()[0] == 0
    assert fleet.load(f"node-a/{UNDERLAY}")["underlays"][0]["tunnelEndpoint"]["cidrs"] == ["100.65.0.0/24"]
    assert (fleet.out / "node-a" / UNDERLAY).read_text().endswith("# $5 $x\n")
    fleet.change(fleet.inventory, "leaf: 192.168.11.2", 'leaf: "a\\nb"')
    code, said = fleet.generate()
    assert code == exit_codes.CONFIG
    assert "node node-a: has more than one line: ${leaf}" in said


def test_a_directory_of_others_is_left_alone(fleet: Fleet) -> None:
    fleet.out.mkdir()
    (fleet.out / "mine").write_text("")
    code, said = fleet.generate()
    assert code == exit_codes.USAGE
    assert "contains other files" in said
    assert [path.name for path in fleet.out.iterdir()] == ["mine"]


def test_an_inventory_that_does_not_exist(fleet: Fleet) -> None:
    fleet.inventory.unlink()
    assert fleet.generate()[0] == exit_codes.NO_INPUT


def test_the_playbook_runs_commands_that_exist() -> None:
    [play] = yaml.safe_load((EXAMPLE / "ansible.yaml").read_text())
    commands = [task["ansible.builtin.command"]["argv"] for task in play["tasks"] if "ansible.builtin.command" in task]
    assert [words[1] for words in commands] == ["generate", "reload", "status"]
    for words in commands:
        assert build_parser().parse_args(words[1:]).verb == words[1]
    handlers = {handler["name"] for handler in play["handlers"]}
    assert {task["notify"] for task in play["tasks"] if "notify" in task} == handlers
