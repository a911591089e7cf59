"""Which of a NIC's sysctls are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.netlink.wire.nic_sysctls import own_sysctls, path_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A namespace in which all of a NIC's sysctls are the defaults."""
    for nic in ("default", "eth1.5"):
        for file in ("ipv4/rp_filter", "ipv4/mc_forwarding", "ipv6/accept_ra", "ipv6/mtu", "ipv6/addr_gen_mode"):
            family, _, name = file.partition("/")
            path = tmp_path / family / "conf" / nic / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("0\n")
            if name == "mc_forwarding":
                path.chmod(0o444)
    return tmp_path


def put(root: Path, key: str, value: str) -> None:
    file = root / path_of("eth1.5", key)
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    file.unlink(missing_ok=True)
    file.write_text(f"{value}\n")
    file.chmod(mode)


def test_a_nics_own_sysctls_differ_from_the_defaults(root: Path) -> None:
    assert own_sysctls("eth1.5", root) == ()
    put(root, "ipv6.accept_ra", "2")
    put(root, "ipv4.rp_filter", "-1")
    assert own_sysctls("eth1.5", root) == (("ipv4.rp_filter", "-1"), ("ipv6.accept_ra", "2"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ipv4.mc_forwarding", "1"),
        ("ipv6.mtu", "1400"),
        ("ipv6.stable_secret", "2001:db8::1"),
        ("ipv6.addr_gen_mode", "2"),
    ],
    ids=["read-only", "the link's", "a secret", "needs a secret"],
)
def test_sysctls_that_cannot_or_must_not_be_restored_are_not_recorded(root: Path, key: str, value: str) -> None:
    put(root, key, value)
    assert own_sysctls("eth1.5", root) == ()


def test_a_missing_nic_and_a_missing_address_family_have_no_sysctls(root: Path) -> None:
    assert own_sysctls("eth2", root) == ()
    assert own_sysctls("eth2", root / "absent") == ()
