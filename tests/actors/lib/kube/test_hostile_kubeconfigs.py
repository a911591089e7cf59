"""What a writer of the credentials directory cannot make a root process do: run, read, or send anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.lib.kube.credentials import Loaded, LoadingError, Trust, load
from config.settings import Settings
from tests.actors.lib.kube.kubeconfigs import (
    CA,
    CERTIFICATE,
    KEY,
    TOKEN,
    Json,
    base64_of,
    credential,
    kubeconfig,
    program,
)

OWN_CA = {"certificate-authority-data": base64_of(CA)}
SECRET = "outside-secret-4711"
STRICT = Trust.of(Settings())
PROGRAMS = Trust(programs=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the kubeconfig goes; beside its directory is a file that is none of its writer's business."""
    (tmp_path / "outside").write_text(SECRET)
    (tmp_path / "credentials").mkdir()
    return tmp_path / "credentials" / "kubeconfig"


def write(path: Path, user: Json | None = None, **cluster: object) -> Path:
    path.write_text(kubeconfig(user, {**OWN_CA, **cluster}))
    return path


def write_whole(path: Path, user: Json | None = None, cluster: Json | None = None) -> None:
    path.write_text(kubeconfig(user, cluster))


async def refusal(path: Path, trust: Trust = STRICT) -> str:
    """Return the error, which is one line and quotes no secret."""
    with pytest.raises(LoadingError) as caught:
        await load(path, trust=trust)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert not [one for one in (SECRET, TOKEN, KEY) if one in text]
    return text


def token(loaded: Loaded) -> str:
    assert loaded.credentials.token is not None
    return loaded.credentials.token.reveal()


PROGRAM_USERS: dict[str, Json] = {
    "exec": {"exec": {"apiVersion": "v1", "command": "/bin/sh", "args": ["-c", "touch ran"]}},
    "exec by PATH": {"exec": {"apiVersion": "v1", "command": "touch", "args": ["ran"]}},
    "auth-provider": {"auth-provider": {"name": "gcp", "config": {"cmd-path": "touch", "cmd-args": "ran"}}},
}


@pytest.mark.parametrize("what", PROGRAM_USERS)
async def test_no_program_runs_without_the_setting(path: Path, what: str) -> None:
    text = await refusal(write(path, PROGRAM_USERS[what]))
    assert f"{what.partition(' ')[0]}: programs that give credentials need the setting kubeconfigPrograms" in text
    assert not list(path.parent.glob("ran*"))


def writable(path: Path) -> Path:
    path.chmod(0o777)
    return path


def foreign(path: Path) -> Path:
    os.chown(path, 12345, 12345)
    return path


def groups(path: Path) -> Path:
    os.chown(path, -1, 12345)
    path.chmod(0o770)
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
@pytest.mark.parametrize("expose", [writable, foreign, groups])
@pytest.mark.parametrize("name", ["kubeconfig", "give-credentials", "."])
async def test_no_program_runs_that_another_user_can_write(
    path: Path, name: str, expose: Callable[[Path], Path]
) -> None:
    ran = path.with_name("ran")
    write(path, program(path.parent, f"touch {ran}\n{credential(token=TOKEN)}"))
    assert token(await load(path, trust=PROGRAMS)) == TOKEN
    ran.unlink()
    changed = expose(path.parent / name)
    text = await refusal(path, PROGRAMS)
    assert f"exec: not run as root, since users other than root can write {changed}" in text
    assert not ran.exists()


async def test_no_program_runs_that_a_link_leads_to(path: Path, tmp_path: Path) -> None:
    writable(tmp_path / "outside")
    user = program(path.parent, "true")
    path.with_name("give-credentials").unlink()
    path.with_name("give-credentials").symlink_to(tmp_path / "outside")
    assert f"can write {path.with_name('give-credentials')}" in await refusal(write(path, user), PROGRAMS)


FILE_KEYS: dict[str, Callable[[str], tuple[Json, Json]]] = {
    "tokenFile": lambda name: ({"tokenFile": name}, OWN_CA),
    "client-certificate": lambda name: ({"token": TOKEN, "client-certificate": name}, OWN_CA),
    "client-key": lambda name: (
        {"client-certificate-data": base64_of(CERTIFICATE), "client-key": name},
        OWN_CA,
    ),
    "certificate-authority": lambda name: ({"token": TOKEN}, {"certificate-authority": name}),
}


@pytest.mark.parametrize("key", FILE_KEYS)
@pytest.mark.parametrize("form", ["absolute", "relative", "link", "linked directory"])
async def test_no_file_outside_the_directory_is_read(path: Path, tmp_path: Path, key: str, form: str) -> None:
    path.with_name("link").symlink_to(tmp_path / "outside")
    path.with_name("up").symlink_to(tmp_path)
    names = {"absolute": str(tmp_path / "outside"), "relative": "../outside", "link": "link"}
    user, cluster = FILE_KEYS[key](names.get(form, "up/outside"))
    write_whole(path, user, cluster)
    text = await refusal(path)
    assert f"{key} names " in text
    assert ("other directories are not read" if form in ("absolute", "relative") else "outside") in text


async def test_files_elsewhere_are_read_for_the_administrators_own_kubeconfig(path: Path, tmp_path: Path) -> None:
    settings = Settings(kubeconfig=path)
    write(path, {"tokenFile": str(tmp_path / "outside")})
    assert token(await load(path, trust=Trust.of(settings))) == SECRET
    writable(path)
    assert "other directories are not read" in await refusal(path, Trust.of(settings))


async def test_links_inside_the_directory_are_followed(path: Path) -> None:
    """As in a projected volume."""
    data = path.with_name("..2026")
    data.mkdir()
    (data / "token").write_text(TOKEN)
    path.with_name("..data").symlink_to("..2026")
    path.with_name("token").symlink_to("..data/token")
    assert token(await load(write(path, {"tokenFile": "/var/run/secrets/token"}))) == TOKEN


UNENCRYPTED: dict[str, Json] = {
    "a token": {"token": TOKEN},
    "a certificate": {"client-certificate-data": base64_of(CERTIFICATE), "client-key-data": base64_of(KEY)},
}


@pytest.mark.parametrize("what", UNENCRYPTED)
async def test_nothing_is_sent_unencrypted(path: Path, what: str) -> None:
    write(path, UNENCRYPTED[what], server="http://192.0.2.66")
    assert "server: must be https" in await refusal(path)


async def test_what_a_program_gives_is_not_sent_unencrypted(path: Path) -> None:
    write(path, program(path.parent, credential(token=TOKEN)), server="http://192.0.2.66")
    assert "server: must be https" in await refusal(path, PROGRAMS)


async def test_an_authority_is_named_or_the_settings_say_otherwise(path: Path) -> None:
    write_whole(path)
    assert "certificate-authority: missing" in await refusal(path)
    assert (await load(path, trust=Trust.of(Settings(kubeconfig_without_authority=True)))).credentials.ca == ""


@pytest.mark.parametrize("cluster", [{"proxy-url": "http://192.0.2.66"}, {"proxy-url": "socks5://192.0.2.66"}], ids=str)
async def test_no_proxy_is_used(path: Path, cluster: Json) -> None:
    assert "proxy-url: not supported" in await refusal(write(path, **cluster))


def test_by_default_nothing_is_trusted() -> None:
    assert Trust.of(Settings()) == Trust()


_PATHS = st.sampled_from(["outside", "../outside", "up/outside", "link", "./up/../outside", "../credentials/token"])


@given(
    user=st.dictionaries(st.sampled_from(("tokenFile", "client-certificate", "client-key")), _PATHS, max_size=3),
    cluster=st.dictionaries(st.sampled_from(("certificate-authority",)), _PATHS, max_size=1),
    command=st.none() | st.sampled_from(["./run", "sh", "/bin/sh"]),
    server=st.sampled_from(["https://192.0.2.66", "http://192.0.2.66", "HTTP://192.0.2.66"]),
)
def test_no_kubeconfig_reads_outside_or_runs_anything(
    tmp_path_factory: pytest.TempPathFactory, user: Json, cluster: Json, command: str | None, server: str
) -> None:
    base = tmp_path_factory.mktemp("any")
    directory = base / "credentials"
    directory.mkdir()
    pem = f"{CERTIFICATE}{SECRET}"
    (base / "outside").write_text(pem)
    (directory / "token").write_text("inside")
    (directory / "link").symlink_to(base / "outside")
    (directory / "up").symlink_to(base)
    if command:
        user = {**user, "exec": {"apiVersion": "v1", "command": command, "args": ["-c", f"touch {base}/ran"]}}
    data = kubeconfig(user, {**cluster, "server": server})
    (directory / "kubeconfig").write_text(data)

    async def outcome() -> str:
        try:
            found = (await load(directory / "kubeconfig", trust=Trust(any_authority=True))).credentials
        except LoadingError as error:
            return str(error)
        secrets = [one.reveal() for one in (found.token, found.client_key) if one is not None]
        # Only a server that gets nothing may be unencrypted.
        assert found.server.startswith("https") or not (secrets or found.client_certificate)
        return json.dumps([found.ca, found.client_certificate, *secrets])

    assert SECRET not in trio.run(outcome)
    assert not (base / "ran").exists()
