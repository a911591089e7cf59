"""The commands as an operator types them on the node."""

from __future__ import annotations

from guestvm.machine import Machine

from .commands import status

BROKEN = """\
l3vnis:
  - vrf: red
    vni: 100
    hostSession:
      asn: 64514
      hostASN: not-a-number
      localCIDR:
        ipv4: 172.27.10.0/24
"""


def test_a_converged_node_has_an_empty_plan(node: Machine) -> None:
    done = node.remote.run("openperouter plan")
    assert "nothing to do" in done.stdout


def test_validate_accepts_what_is_in_force(node: Machine) -> None:
    assert node.remote.run("openperouter validate", check=False).returncode == 0


def test_validate_names_the_line_that_is_wrong_and_exits_78(node: Machine) -> None:
    command = "cat >/tmp/openpe_bad.yaml; openperouter validate /tmp/openpe_bad.yaml"
    done = node.remote.run(command, stdin=BROKEN, check=False)
    assert done.returncode == 78
    assert "/tmp/openpe_bad.yaml:6:" in done.stdout + done.stderr


def test_a_second_instance_refuses_to_start_and_names_the_first(node: Machine) -> None:
    main_pid = node.remote.run("systemctl show --value -p MainPID openperouter").stdout.strip()
    done = node.remote.run("timeout 250 openperouter run", check=False)
    assert done.returncode == 75
    assert main_pid in done.stdout + done.stderr


def test_status_in_json_knows_both_networks(node: Machine) -> None:
    vnis = {vni["vni"]: vni["ok"] for vni in status(node)["vnis"]}
    assert vnis == {100: True, 210: True}
