"""What ``make demo`` lays onto the guest before it boots the program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from demo import topology


def test_the_installed_directories_take_a_nodes_configuration(tmp_path: Path) -> None:
    subprocess.run([str(topology.CHECKOUT / "packaging" / "install.sh"), str(tmp_path)], check=True)
    target = tmp_path / "etc/openperouter"
    topology._stage_configuration(target)
    assert (target / "node-config.yaml").read_text() == (topology.EXAMPLES / "node-config.yaml").read_text()
    names = sorted(path.name for path in (target / "configs").glob("*.yaml"))
    assert names == ["openpe_l3vni.yaml", "openpe_stretched.yaml", "openpe_underlay.yaml"]
