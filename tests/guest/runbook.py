"""The commands of the pages for alerts and the journal: which of them a test runs on a node, and how each must end.

The node is that of the operations page: NIC toswitch1, the leaf 192.168.11.2, L3VNI red with VNI 100, no trial.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from demo import topology

PAGES: Final = tuple(topology.CHECKOUT / "docs" / name for name in ("alerts.md", "journal.md"))
#: What a command on a page begins with.
PROGRAMS: Final = frozenset(
    {"openperouter", "journalctl", "systemctl", "ip", "vtysh", "df", "timedatectl", "curl", "kubectl"}
)
#: Placeholders in commands, and what they are on the node.
WORDS: Final = {
    "ACTOR=NAME": "ACTOR=health",
    "ID": "00000000000000000000000000000000",
    "NEIGHBOUR": "192.168.11.2",
    "PEER": "192.168.11.2",
    "SIZE": "1400",
    "VNI": "100",
    "dev NAME": "dev toswitch1",
    "peer-config NAME": "peer-config red",
}
#: Commands that change nothing, and with which codes they may exit.
RUN: Final[dict[str, tuple[int, ...]]] = {
    "openperouter status": (0,),
    "openperouter status -v": (0,),
    # With 1 for what the machine of the test lacks, such as a service that is not restarted.
    "openperouter doctor": (0, 1),
    "openperouter validate": (0,),
    "openperouter plan": (0,),
    "openperouter show peer-config NAME": (0,),
    "openperouter logs red": (0,),
    # There is none.
    "openperouter try --status": (1,),
    "journalctl -u openperouter -x --since -1h": (0,),
    "journalctl -u openperouter -x ACTOR=NAME --since -1h": (0,),
    "journalctl -u openperouter --since -1h": (0,),
    "journalctl -u openperouter --since -1h ACTOR=health": (0,),
    "journalctl -u openperouter -x --since -1d": (0,),
    "journalctl -u openperouter RESOURCE='L3VNI red'": (0,),
    "journalctl -u openperouter -o verbose": (0,),
    "journalctl -u frr@perouter --since -1h": (0,),
    "journalctl MESSAGE_ID=ID": (0,),
    "journalctl -k": (0,),
    # grep's 1 is good news.
    "journalctl -k | grep -i oom": (0, 1),
    "systemctl status openperouter": (0,),
    "systemctl status frr@perouter": (0,),
    "ip -n perouter link": (0,),
    "ip -n perouter addr": (0,),
    "ip -n perouter -s link": (0,),
    "ip -n perouter link show dev NAME": (0,),
    # It is in the router.
    "ip link show dev NAME": (1,),
    "ip netns exec perouter ping -c 3 NEIGHBOUR": (0,),
    "ip netns exec perouter ping -c 3 -M do -s SIZE NEIGHBOUR": (0,),
    "vtysh -N perouter -d bgpd -c 'show bgp summary'": (0,),
    "vtysh -N perouter -d bgpd -c 'show bgp neighbors PEER'": (0,),
    "vtysh -N perouter -d zebra -c 'show evpn vni VNI'": (0,),
    "vtysh -N perouter -d mgmtd -c 'show mgmt frontend-adapter all'": (0,),
    "df -h": (0,),
    "timedatectl": (0,),
}
#: The others, and why no test runs them there.
NOT_RUN: Final = {
    "openperouter try": "only names the command",
    "openperouter try --confirm": "changes the node",
    "openperouter try --revert": "changes the node",
    "openperouter reload": "changes the node",
    "openperouter bundle": "the operations page does",
    "systemctl start openperouter": "changes the node",
    "systemctl restart frr@perouter": "interrupts its sessions",
    "ip -n perouter -timestamp monitor": "runs until it is interrupted",
    "journalctl -x": "is the whole journal of the machine",
    "curl -k https://SERVER/readyz": "the node has no API server",
    "kubectl apply -f /usr/share/openperouter/kubernetes": "the node has no API server",
    "kubectl get pods -n openperouter-system -o wide": "the node has no API server",
}


def commands(pages: Iterable[Path] = PAGES) -> Iterator[str]:
    """Yield what the pages have as commands, in text and in blocks; some more than once."""
    for page in pages:
        text = page.read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
        for command in (*spans, *(line for block in blocks for line in block.splitlines())):
            if command.split()[0] in PROGRAMS and (" " in command or command == "timedatectl"):
                yield command


def on_the_node(command: str) -> str:
    """Return a command with its placeholders replaced."""
    for word, own in WORDS.items():
        command = re.sub(rf"(?<![\w=]){re.escape(word)}\b" if "=" not in word else re.escape(word), own, command)
    return command.replace("MESSAGE_ID=ID", f"MESSAGE_ID={WORDS['ID']}")


def script(expected: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """Return a script that runs commands, prints those that end otherwise with their output, and fails if any does."""
    lines = ["failed=0", 'output="$(mktemp)"']
    for command, codes in expected:
        own = shlex.quote(on_the_node(command))
        good = "|".join(map(str, codes))
        lines.append(
            f'sh -c {own} > "$output" 2>&1; code=$?; case $code in {good}) ;; '
            f'*) echo {own} "exits with $code, not {good}:"; tail -n 20 "$output"; failed=1 ;; esac'
        )
    return "\n".join([*lines, 'rm "$output"', "exit $failed"])
