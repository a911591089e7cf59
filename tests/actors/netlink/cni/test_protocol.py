"""What CNI plugins are given, and what is read out of their answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.netlink.cni.protocol import (
    PluginError,
    addresses_of,
    checks,
    environment,
    leasing,
    plugin_input,
    plugins_of,
    programs,
    refusal,
    result_of,
)
from config.desired import CniAttachment
from config.models.cni import canonical

CHAIN = {
    "cniVersion": "1.0.0",
    "name": "fabric",
    "plugins": [
        {"type": "macvlan", "master": "eth1", "capabilities": {"mac": True, "ips": False}},
        {"type": "tuning", "capabilities": {"bandwidth": True}},
    ],
}
CHAINED = CniAttachment("net1", canonical(CHAIN), canonical({"mac": "02:00:00:00:00:01", "ips": ["192.0.2.3/24"]}))


def test_a_plugin_s_environment_is_the_specification_s() -> None:
    found = environment(
        "ADD", "net1", container="perouter-underlay", netns=Path("/run/netns/perouter"), directory=Path("/usr/lib/cni")
    )
    assert found == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "perouter-underlay",
        "CNI_NETNS": "/run/netns/perouter",
        "CNI_IFNAME": "net1",
        "CNI_PATH": "/usr/lib/cni",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }


def test_a_plugin_gets_the_list_s_name_and_version_and_the_capabilities_that_it_declares() -> None:
    assert plugins_of(CHAINED) == ("macvlan", "tuning")
    assert json.loads(plugin_input(CHAINED, 0, "")) == {
        "cniVersion": "1.0.0",
        "name": "fabric",
        "type": "macvlan",
        "master": "eth1",
        "runtimeConfig": {"mac": "02:00:00:00:00:01"},
    }
    assert json.loads(plugin_input(CHAINED, 1, '{"ips": []}')) == {
        "cniVersion": "1.0.0",
        "name": "fabric",
        "type": "tuning",
        "prevResult": {"ips": []},
    }


def test_what_the_configuration_needs_is_its_plugins_and_theirs_for_addresses() -> None:
    plugins = [{"type": "macvlan", "ipam": {"type": "dhcp"}}, {"type": "tuning"}]
    leased = CniAttachment("net1", canonical(CHAIN | {"plugins": plugins}))
    assert programs(leased) == {"macvlan", "dhcp", "tuning"}
    assert (leasing(leased), leasing(CHAINED)) == ((0,), ())


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ('{"ips":[{"address":"192.0.2.3/24","gateway":"192.0.2.1"},{"address":"2001:db8::3/64"}]}', 2),
        ("{}", 0),
        ('{"ips":[{"address":"nowhere"}]}', 0),
        ('{"ips":[1]}', 0),
        ('{"ips":7}', 0),
    ],
)
def test_addresses_are_read_out_of_a_result(result: str, expected: int) -> None:
    assert len(addresses_of(result)) == expected


@pytest.mark.parametrize(("disabled", "expected"), [(None, True), (False, True), (True, False)])
def test_a_configuration_can_forbid_check(disabled: bool | None, expected: bool) -> None:
    extra = {} if disabled is None else {"disableCheck": disabled}
    assert checks(CniAttachment("net1", canonical(CHAIN | extra))) is expected


def test_a_result_is_the_object_that_the_plugin_wrote() -> None:
    assert result_of("macvlan", '{ "ips": [],\n "cniVersion": "1.0.0" }') == '{"cniVersion":"1.0.0","ips":[]}'


@pytest.mark.parametrize("output", ["", "not JSON", "[]", '{"ips": NaN}', "[" * 100_000])
def test_what_is_no_result_is_an_error_of_the_plugin(output: str) -> None:
    with pytest.raises(PluginError, match=r"^CNI plugin macvlan: ") as caught:
        result_of("macvlan", output)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("status", "output", "errors", "text", "unable"),
    [
        (1, '{"code": 999, "msg": "no eth1", "details": "at all"}', "", "no eth1: at all", False),
        (1, '{"code": 100, "msg": "no\\u001b[31m\\neth1"}', "", "no [31m eth1", False),
        (1, '{"code": 7, "msg": "bad address"}', "", "bad address", True),
        (1, '{"code": 11, "msg": "later"}', "", "later", True),
        (2, "", "panic: oh\nno", "exit status 2: panic: oh no", True),
        (-9, "", "", "killed by signal 9: ", True),
        (1, '{"code": 999, "msg": "' + "x" * 1000 + '"}', "", "x" * 300 + "...", False),
    ],
)
def test_a_refusal_says_what_the_plugin_said(status: int, output: str, errors: str, text: str, unable: bool) -> None:
    error = refusal("macvlan", status, output, errors)
    assert (str(error), error.unable) == (f"CNI plugin macvlan: {text}", unable)
