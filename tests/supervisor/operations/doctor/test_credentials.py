"""What the doctor says of the credentials for the API server, and that looking at them uses none of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.operations.doctor import Finding, HostState, Level, judge
from supervisor.operations.doctor.credentials import Credentials, read_credentials
from supervisor.operations.doctor.files import File, read_files
from tests.actors.lib.kube.kubeconfigs import PLANTED, credential, hostbridge, jwt, kubeconfig, program
from tests.supervisor.operations.doctor.healthy_machine import HEALTHY, KUBECONFIG, SETTINGS, TOKEN, but, the_complaint

OPEN = File("/var/lib/hostbridge", 0o755, directory=True)
NAMED = SETTINGS.model_copy(update={"kubeconfig": Path("/etc/kubeconfig")})

FAULTS: dict[str, tuple[HostState, Level, str, str]] = {
    "named and not there": (
        replace(HEALTHY, settings=NAMED, credentials=Credentials("/etc/kubeconfig")),
        Level.WARNING,
        "/etc/kubeconfig, which does not exist",
        "create it",
    ),
    "broken": (
        but("credentials", problem=f"{KUBECONFIG}:3:5: is not valid YAML", private=()),
        Level.ERROR,
        ":3:5:",
        "correct it",
    ),
    "expired": (
        but("credentials", expires_at=1_789_999_999.0),
        Level.ERROR,
        "expired 2026-09-21 14:13:19 UTC",
        "replace them",
    ),
    "open to others": (
        but("credentials", directories=(OPEN,)),
        Level.WARNING,
        f"{TOKEN} has mode 0644",
        f"chmod o-rwx {TOKEN}",
    ),
    "not verified": (but("credentials", verified=False), Level.WARNING, "insecure-skip-tls-verify", "certificate-auth"),
    "a token of no node": (
        but("credentials", bound_to="", node_name="a"),
        Level.WARNING,
        "is bound to no node",
        "--bound-object-kind Node --bound-object-name a",
    ),
    "another node's token": (
        but("credentials", bound_to="b", node_name="a"),
        Level.WARNING,
        "is bound to the node b, and this one is a",
        "--bound-object-name a",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_one_fault_is_one_complaint_with_its_fix(fault: tuple[HostState, Level, str, str]) -> None:
    machine, level, message, fix = fault
    found = the_complaint(machine)
    assert (found.topic, found.level) == ("credentials", level)
    assert message in found.message
    assert fix in found.fix


def findings_of(machine: HostState) -> list[Finding]:
    return [finding for finding in judge(machine) if finding.topic == "credentials"]


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (HEALTHY, "for https://192.0.2.10:6443"),
        (but("credentials", program="aws"), "from the program aws"),
        (replace(HEALTHY, credentials=Credentials(KUBECONFIG)), "works from its files alone"),
        (replace(but("credentials", expires_at=1.0), clock=None), "for https://192.0.2.10:6443"),
    ],
)
def test_usable_credentials_are_reported_as_ok(machine: HostState, message: str) -> None:
    [found] = findings_of(machine)
    assert found.level is Level.OK
    assert message in found.message


def test_nothing_is_said_of_what_could_not_be_looked_at() -> None:
    assert findings_of(replace(HEALTHY, credentials=None)) == []


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    directory = tmp_path / "bridge"
    directory.mkdir()
    return Settings(
        credentials_dir=directory,
        configs_dir=tmp_path,
        state_dir=tmp_path,
        node_config_file=tmp_path / "node-config.yaml",
    )


async def test_no_credentials_are_a_fact(settings: Settings) -> None:
    assert await read_credentials(settings) == Credentials(str(settings.credentials_dir / "kubeconfig"))


async def test_what_upstreams_proxy_writes(settings: Settings) -> None:
    path = hostbridge(settings.credentials_dir)
    (settings.credentials_dir / "token").write_text(jwt(exp=2_000_000_000))
    found = await read_credentials(settings)
    assert (found.exists, found.problem, found.server) == (True, "", "https://192.0.2.10:6443")
    assert found.expires_at == 2_000_000_000
    assert [file.path for file in found.private] == [str(path), str(settings.credentials_dir / "token")]
    assert {file.path for file in found.directories} == {str(parent) for parent in path.parents}


async def test_for_which_node_a_token_is(settings: Settings) -> None:
    hostbridge(settings.credentials_dir)
    settings.node_config_file.write_text("nodeIndex: {index: 1}\nnodeName: node-a\n")
    for about, bound_to in (({"node": {"name": "node-b"}}, "node-b"), ({"namespace": "x"}, ""), (None, None)):
        (settings.credentials_dir / "token").write_text(jwt(**{"kubernetes.io": about}))
        found = await read_credentials(settings)
        assert (found.bound_to, found.node_name) == (bound_to, "node-a")


async def test_a_broken_one_is_a_fact_and_gives_nothing_away(settings: Settings) -> None:
    path = settings.credentials_dir / "kubeconfig"
    path.write_text(f"users: [{PLANTED[0]}\n")
    found = await read_credentials(settings)
    assert found.problem.startswith(f"{path}:")
    assert not [secret for secret in PLANTED if secret in repr(found)]
    assert [file.path for file in found.private] == [str(path)]


async def test_a_program_is_named_and_not_run(settings: Settings) -> None:
    ran = settings.credentials_dir / "ran"
    user = program(settings.credentials_dir, f"touch {ran}\n{credential(token=PLANTED[0])}")
    (settings.credentials_dir / "kubeconfig").write_text(kubeconfig(user))
    found = await read_credentials(settings)
    assert "kubeconfigPrograms" in found.problem
    allowed = {"kubeconfig_programs": True, "kubeconfig_without_authority": True}
    found = await read_credentials(settings.model_copy(update=allowed))
    assert found.program == user["exec"]["command"]
    assert found.problem == ""
    assert not ran.exists()


def test_who_may_write_the_kubeconfig_is_looked_at(settings: Settings) -> None:
    """It can name a program, which then runs as root."""
    path = settings.credentials_dir / "kubeconfig"
    path.write_text("")
    looked_at = {fact.path for fact in read_files(settings, settings.credentials_dir / "openperouter.yaml")}
    assert looked_at >= {str(path), str(settings.credentials_dir)}
