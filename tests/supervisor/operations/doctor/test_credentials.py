"""What the doctor says of the credentials for the API server, and that looking at them uses none of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Settings
from supervisor.operations.doctor import Finding, Level, examine
from supervisor.operations.doctor.credentials_probes import credentials
from supervisor.operations.doctor.facts import CredentialsFacts, Facts, FileFact
from supervisor.operations.doctor.machine_probes import files
from tests.actors.lib.kube.kubeconfigs import PLANTED, credential, hostbridge, jwt, kubeconfig, program
from tests.supervisor.operations.doctor.healthy_machine import KUBECONFIG, SETTINGS, TOKEN, WELL, but, the_complaint

OPEN = FileFact("/var/lib/hostbridge", 0o755, directory=True)
NAMED = SETTINGS.model_copy(update={"kubeconfig": Path("/etc/kubeconfig")})

FAULTS: dict[str, tuple[Facts, Level, str, str]] = {
    "named and not there": (
        replace(WELL, settings=NAMED, credentials=CredentialsFacts("/etc/kubeconfig")),
        Level.WARNING,
        "/etc/kubeconfig, which is not there",
        "put it there",
    ),
    "broken": (
        but("credentials", problem=f"{KUBECONFIG}:3:5: is not valid YAML", private=()),
        Level.ERROR,
        ":3:5:",
        "mend it",
    ),
    "ended": (but("credentials", ends=1_789_999_999.0), Level.ERROR, "ended 2026-09-21 14:13:19 UTC", "replace them"),
    "open to everybody": (
        but("credentials", directories=(OPEN,)),
        Level.WARNING,
        f"{TOKEN} has mode 0644",
        f"chmod o-rwx {TOKEN}",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_one_fault_is_one_complaint_with_its_cure(fault: tuple[Facts, Level, str, str]) -> None:
    facts, level, message, cure = fault
    found = the_complaint(facts)
    assert (found.topic, found.level) == ("credentials", level)
    assert message in found.message
    assert cure in found.cure


def said(facts: Facts) -> list[Finding]:
    return [finding for finding in examine(facts) if finding.topic == "credentials"]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (WELL, "for https://192.0.2.10:6443"),
        (but("credentials", program="aws"), "given by the program aws"),
        (replace(WELL, credentials=CredentialsFacts(KUBECONFIG)), "works from its files alone"),
        (replace(but("credentials", ends=1.0), clock=None), "for https://192.0.2.10:6443"),
    ],
)
def test_what_is_well_is_said_too(facts: Facts, message: str) -> None:
    [found] = said(facts)
    assert found.level is Level.OK
    assert message in found.message


def test_nothing_is_said_of_what_could_not_be_looked_at() -> None:
    assert said(replace(WELL, credentials=None)) == []


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    directory = tmp_path / "bridge"
    directory.mkdir()
    return Settings(credentials_dir=directory, configs_dir=tmp_path, state_dir=tmp_path)


async def test_no_credentials_are_a_fact(settings: Settings) -> None:
    assert await credentials(settings) == CredentialsFacts(str(settings.credentials_dir / "kubeconfig"))


async def test_what_upstreams_proxy_writes(settings: Settings) -> None:
    path = hostbridge(settings.credentials_dir)
    (settings.credentials_dir / "token").write_text(jwt(exp=2_000_000_000))
    found = await credentials(settings)
    assert (found.there, found.problem, found.server) == (True, "", "https://192.0.2.10:6443")
    assert found.ends == 2_000_000_000
    assert [file.path for file in found.private] == [str(path), str(settings.credentials_dir / "token")]
    assert {file.path for file in found.directories} == {str(parent) for parent in path.parents}


async def test_a_broken_one_is_a_fact_and_gives_nothing_away(settings: Settings) -> None:
    path = settings.credentials_dir / "kubeconfig"
    path.write_text(f"users: [{PLANTED[0]}\n")
    found = await credentials(settings)
    assert found.problem.startswith(f"{path}:")
    assert not [secret for secret in PLANTED if secret in repr(found)]
    assert [file.path for file in found.private] == [str(path)]


async def test_a_program_is_named_and_not_run(settings: Settings) -> None:
    ran = settings.credentials_dir / "ran"
    user = program(settings.credentials_dir, f"touch {ran}\n{credential(token=PLANTED[0])}")
    (settings.credentials_dir / "kubeconfig").write_text(kubeconfig(user))
    found = await credentials(settings)
    assert found.program == user["exec"]["command"]
    assert found.problem == ""
    assert not ran.exists()


def test_who_may_write_the_kubeconfig_is_looked_at(settings: Settings) -> None:
    """It can name a program, which then runs as root."""
    path = settings.credentials_dir / "kubeconfig"
    path.write_text("")
    looked_at = {fact.path for fact in files(settings, settings.credentials_dir / "openperouter.yaml")}
    assert looked_at >= {str(path), str(settings.credentials_dir)}
