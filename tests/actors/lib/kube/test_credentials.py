"""Kubeconfigs of every kind: what is read, what is refused and why, and what a credential plugin may do to us."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
import yaml
from hypothesis import given
from hypothesis import strategies as st

from actors.lib.kube import auth_provider, credentials
from actors.lib.kube.credentials import Loaded, LoadingError, Trust, digest, load
from supervisor.process.subprocesses import Completed
from tests.actors.lib.kube.kubeconfigs import (
    CA,
    CERTIFICATE,
    KEY,
    PLANTED,
    SERVER,
    TOKEN,
    Json,
    base64_of,
    credential,
    hostbridge,
    jwt,
    kubeconfig,
    program,
)

#: What the settings can allow; tests/actors/lib/kube/test_hostile_kubeconfigs.py is about what they do not.
read = partial(load, trust=Trust(programs=True, elsewhere=True, any_authority=True))
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the kubeconfig goes; its directory holds nothing else."""
    directory = tmp_path / "credentials"
    directory.mkdir()
    return directory / "kubeconfig"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def token_of(loaded: Loaded) -> str:
    assert loaded.credentials.token is not None
    return loaded.credentials.token.reveal()


async def refused(path: Path, seconds: float = 60.0) -> LoadingError:
    with pytest.raises(LoadingError) as caught:
        await read(path, seconds=seconds)
    shown = f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    assert not [secret for secret in PLANTED if secret in shown]
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    return caught.value


async def test_a_token_and_inline_certificates(path: Path) -> None:
    user = {"client-certificate-data": base64_of(CERTIFICATE), "client-key-data": base64_of(KEY), "token": TOKEN}
    cluster = {"certificate-authority-data": base64_of(CA), "tls-server-name": "kubernetes"}
    write(path, kubeconfig(user, cluster))
    loaded = await read(path)
    found = loaded.credentials
    assert (found.server, found.source) == (SERVER, str(path))
    assert (found.ca, found.client_certificate, found.server_name) == (CA, CERTIFICATE, "kubernetes")
    assert found.client_key is not None
    assert found.client_key.reveal() == KEY
    assert token_of(loaded) == TOKEN
    assert (found.verify, found.expires_at, loaded.program) == (True, None, "")
    assert loaded.files == {path: digest(path)}
    assert not [secret for secret in PLANTED if secret in repr(loaded)]


async def test_upstreams_credentials_proxy_whose_paths_are_those_of_its_container(path: Path) -> None:
    loaded = await read(hostbridge(path.parent))
    assert (loaded.credentials.ca, token_of(loaded)) == (CA, TOKEN)
    token, ca = path.with_name("token"), path.with_name("ca.crt")
    missing = dict.fromkeys((Path("/shared/token"), Path("/shared/ca.crt")), "missing")
    assert loaded.files == {**{file: digest(file) for file in (path, token, ca)}, **missing}
    assert loaded.private == (path, token)


async def test_files_named_where_they_are_and_relative_to_the_kubeconfig(path: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    path.with_name("token").write_text("not this one")
    path.with_name("ca.crt").write_text(CA)
    write(path, kubeconfig({"tokenFile": str(tmp_path / "token")}, {"certificate-authority": "ca.crt"}))
    loaded = await read(path)
    assert (loaded.credentials.ca, token_of(loaded)) == (CA, TOKEN)


async def test_the_token_file_wins_over_a_token(path: Path) -> None:
    path.with_name("token").write_text("fresh")
    write(path, kubeconfig({"token": TOKEN, "tokenFile": "token"}))
    assert token_of(await read(path)) == "fresh"


async def test_the_current_of_several_contexts(path: Path) -> None:
    clusters = [{"name": name, "cluster": {"server": f"https://{name}"}} for name in ("a", "b")]
    users = [{"name": name, "user": {"token": f"token-{name}"}} for name in ("a", "b")]
    contexts = [{"name": name, "context": {"cluster": name, "user": name}} for name in ("a", "b")]
    write(path, kubeconfig(clusters=clusters, users=users, contexts=contexts, current="b"))
    loaded = await read(path)
    assert (loaded.credentials.server, token_of(loaded)) == ("https://b", "token-b")


async def test_json_is_accepted_and_tls_verification_can_be_off(path: Path) -> None:
    write(
        path,
        '{"current-context": "x", "clusters": [{"name": "c", "cluster": {"server": "https://s/prefix/",'
        ' "insecure-skip-tls-verify": true}}], "users": [{"name": "u", "user": {"token": "t"}}],'
        ' "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}',
    )
    loaded = await read(path)
    assert (loaded.credentials.server, loaded.credentials.verify) == ("https://s/prefix", False)


async def test_a_token_with_an_expiry(path: Path) -> None:
    path.with_name("token").write_text(jwt(exp=2_000_000_000))
    write(path, kubeconfig({"tokenFile": "token"}))
    assert (await read(path)).credentials.expires_at == 2_000_000_000


async def test_a_plugin_that_gives_a_token_and_its_expiry(path: Path) -> None:
    user = program(path.parent, credential(token=TOKEN, expirationTimestamp="2033-05-18T03:33:20Z"))
    loaded = await read(write(path, kubeconfig(user)))
    assert token_of(loaded) == TOKEN
    assert loaded.program == user["exec"]["command"]
    assert loaded.credentials.expires_at == 2_000_000_000 - credentials.EARLY_SECONDS
    assert Path(loaded.program) in loaded.files


async def test_a_plugins_credentials_with_a_short_life_are_renewed_at_half_of_it(path: Path) -> None:
    user = program(path.parent, credential(token=TOKEN, expirationTimestamp="2033-05-18T03:33:20Z"))
    loaded = await read(write(path, kubeconfig(user)), wall=lambda: 2_000_000_000 - 10)
    assert loaded.credentials.expires_at == 2_000_000_000 - 5


async def test_a_plugin_that_gives_a_certificate(path: Path) -> None:
    user = program(path.parent, credential(clientCertificateData=CERTIFICATE, clientKeyData=KEY))
    loaded = await read(write(path, kubeconfig(user)))
    assert loaded.credentials.client_certificate == CERTIFICATE
    assert loaded.credentials.client_key is not None
    assert loaded.credentials.client_key.reveal() == KEY


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"echo no luck with {TOKEN} >&2; exit 3", "it ended with code 3"),
        (f"echo {TOKEN}", "its output is not JSON"),
        ('echo \'{"apiVersion": "v9", "kind": "ExecCredential", "status": {}}\'', "another API version"),
        ("echo '{}'", "its answer is incomplete"),
        (credential(), "neither a token nor a certificate"),
        (credential(clientCertificateData=CERTIFICATE), "neither a token nor a certificate with its key"),
    ],
)
async def test_a_plugin_that_fails_is_named_with_the_reason(path: Path, body: str, reason: str) -> None:
    user = program(path.parent, body)
    user["exec"]["env"] = [{"name": "PASSWORD", "value": PLANTED[1]}]
    error = await refused(write(path, kubeconfig(user)))
    assert user["exec"]["command"] in str(error)
    assert reason in str(error)
    assert error.passing


async def test_a_plugin_that_is_missing_is_watched_for(path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./not-there"}}
    error = await refused(write(path, kubeconfig(user)))
    assert "No such file or directory" in str(error)
    assert error.files[path.parent / "not-there"] == "missing"


async def test_a_plugin_that_hangs_is_killed(path: Path) -> None:
    write(path, kubeconfig(program(path.parent, "sleep 1000")))
    with pytest.raises(LoadingError, match=r"it did not finish within 0\.3 s") as caught:
        await read(path, seconds=0.3)
    assert caught.value.passing
    assert caught.value.files.keys() == {path, path.with_name("give-credentials")}


async def test_a_cancelled_reading_leaves_no_process(path: Path) -> None:
    fifo = path.with_name("fifo")
    user = program(path.parent, f"mkfifo {fifo}; cat {fifo} & wait")
    write(path, kubeconfig(user))
    async with trio.open_nursery() as nursery:

        async def reading() -> None:
            await read(path)

        nursery.start_soon(reading)
        while not await running(f"cat {fifo}"):  # noqa: ASYNC110 - another process starts it
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    # It is killed, which on a busy machine takes effect a moment later; by itself it would never end.
    with trio.fail_after(60):
        while await running(f"cat {fifo}"):  # noqa: ASYNC110 - the kernel gives no event for a grandchild's end
            await trio.sleep(0.05)
    assert not await running(f"cat {fifo}")


async def running(command: str) -> bool:
    done = await trio.run_process(["pgrep", "-f", f"^{command}$"], capture_stdout=True, check=False)
    return bool(done.stdout)


async def test_an_inspection_runs_no_plugin_and_reads_no_key(path: Path) -> None:
    ran = path.with_name("ran")
    user = program(path.parent, f"touch {ran}")
    user |= {"client-certificate-data": base64_of(CERTIFICATE), "client-key-data": base64_of(KEY)}
    loaded = await read(write(path, kubeconfig(user)), programs=False)
    assert loaded.credentials.client_certificate == CERTIFICATE
    assert loaded.credentials.client_key is None
    assert not ran.exists()


BROKEN: dict[str, tuple[str, str]] = {
    "empty": ("", ": is empty"),
    "not a mapping": ("- a\n- b\n", ": is not a kubeconfig"),
    "bad YAML": (f"users:\n- user: {{token: {TOKEN}\nclusters: []\n", "kubeconfig:3:"),
    "a token where an alias would be": (f"users:\n- token: *{TOKEN}\n", "kubeconfig:2:"),
    "a key twice": (f"token: {TOKEN}\ntoken: {TOKEN}\n", "kubeconfig:2:1"),
    "no current context": (kubeconfig(current=""), "has no current-context"),
    "unknown context": (kubeconfig(current="other"), "current-context is 'other', which is not among its contexts"),
    "no such cluster": (
        kubeconfig(clusters=[{"name": "d", "cluster": {"server": SERVER}}]),
        "names 'c', which is not among its clusters",
    ),
    "no such user": (kubeconfig(users=[]), "names 'u', which is not among its users"),
    "no server": (kubeconfig(cluster={"server": ""}), "has no server"),
    "users of a wrong shape": (kubeconfig(users={"u": {"token": TOKEN}}), "users must be a list"),
    "contexts of a wrong shape": (kubeconfig(contexts="x"), "contexts must be a list"),
    "user of a wrong shape": (kubeconfig(users=[{"name": "u", "user": TOKEN}]), "which is not among its users"),
    "missing token file": (
        kubeconfig({"tokenFile": "/none/token"}),
        "tokenFile names /none/token, which exists neither",
    ),
    "a token where its file should be": (
        kubeconfig({"tokenFile": TOKEN}),
        "tokenFile names a file, which does not exist",
    ),
    "a directory": (kubeconfig({"tokenFile": "/etc"}), "tokenFile names /etc, which is not a regular file"),
    "no PEM": (
        kubeconfig(cluster={"certificate-authority-data": base64_of(TOKEN)}),
        "its certificate-authority is not PEM",
    ),
    "a text for a boolean": (kubeconfig(cluster={"insecure-skip-tls-verify": "no"}), "must be true or false"),
    "no base64": (
        kubeconfig({"client-key-data": "x", "client-certificate-data": "y"}),
        "client-certificate-data is not base64",
    ),
    "password": (kubeconfig({"username": "u", "password": PLANTED[1]}), "not accepted passwords since version 1.19"),
    "impersonation": (kubeconfig({"token": TOKEN, "as": "joe"}), "as: impersonation"),
    "proxy": (
        kubeconfig(cluster={"proxy-url": f"http://u:{PLANTED[1]}@p"}),
        "proxy-url: not supported: a node reaches",
    ),
    "password in the URL": (kubeconfig(cluster={"server": f"https://u:{PLANTED[1]}@s"}), "user or password"),
    "no URL": (kubeconfig(cluster={"server": "kubernetes"}), "must be https://HOST"),
    "an empty label": (kubeconfig(cluster={"server": "https://a..b:6443"}), "server has a host name with"),
    "a long label": (kubeconfig(cluster={"server": f"https://{'x' * 64}.y"}), "server has a host name with"),
    "an empty label for TLS": (kubeconfig(cluster={"tls-server-name": ".x"}), "tls-server-name has a host name with"),
    "a NUL for TLS": (kubeconfig(cluster={"tls-server-name": "a\0b"}), "tls-server-name has a host name with control"),
    "bad port": (kubeconfig(cluster={"server": "https://s:99999"}), "not a URL"),
    "token of two lines": (kubeconfig({"token": f"{TOKEN}\n{TOKEN}"}), "characters that no token can have"),
    "key without certificate": (kubeconfig({"client-key-data": base64_of(KEY)}), "without a client-certificate"),
    "provider without credentials": (
        kubeconfig({"auth-provider": {"name": "gcp"}}),
        "auth-provider gcp returned no credentials: ",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_an_error_is_one_line_without_a_secret(path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Google's library would look for its metadata server.
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    text, reason = BROKEN[what]
    error = await refused(write(path, text))
    assert reason in str(error)
    assert error.files[path] == digest(path)


async def test_an_empty_token_file_is_named_and_watched(path: Path) -> None:
    """A proxy that does not write atomically leaves one for a moment."""
    token = path.with_name("token")
    token.write_text(" \n")
    error = await refused(write(path, kubeconfig({"tokenFile": "/shared/token"})))
    assert f"the token file {token} is empty" in str(error)
    assert token in error.files


async def test_a_missing_file_is_watched_for_in_both_places(path: Path) -> None:
    error = await refused(write(path, kubeconfig({"tokenFile": "/shared/token"})))
    assert set(error.files) == {path, Path("/shared/token"), path.with_name("token")}


async def test_a_kubeconfig_that_was_removed_meanwhile(path: Path) -> None:
    assert "does not exist" in str(await refused(path))


async def test_a_comment_in_a_certificate_is_not_its_end(path: Path) -> None:
    path.with_name("ca.crt").write_text(f"# Autorité\n{CA}")
    write(path, kubeconfig(cluster={"certificate-authority": "ca.crt"}))
    assert (await read(path)).credentials.ca == f"# Autorit\n{CA}"


def test_this_process_imports_neither_the_library_nor_an_http_client() -> None:
    """A node without an API server pays for neither."""
    program_text = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import actors.api_wait.actor\n"
        "print([name for name in ('kubernetes', 'httpx', 'requests', 'urllib3', 'google') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program_text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_plugin_runs_beside_the_kubeconfig_with_its_arguments_and_variables(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = path.with_name("seen")
    user = program(
        path.parent, f'echo "$PWD $1 $REGION [$NOTIFY_SOCKET] $KUBERNETES_EXEC_INFO" >{seen}\n{credential(token=TOKEN)}'
    )
    user["exec"] |= {"command": "./give-credentials", "args": [7], "env": [{"name": "REGION", "value": "north"}]}
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    assert token_of(await read(write(path, kubeconfig(user)))) == TOKEN
    where, argument, region, socket, info = seen.read_text().split(maxsplit=4)
    assert (where, argument, region, socket) == (str(path.parent), "7", "north", "[]")
    version = "client.authentication.k8s.io/v1"
    assert json.loads(info) == {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}


@pytest.mark.parametrize(
    "given",
    [
        {"apiVersion": "v1"},
        {"command": "aws"},
        {"command": "aws", "apiVersion": "v1", "args": TOKEN},
        {"command": "aws", "apiVersion": "v1", "env": [TOKEN]},
        [TOKEN],
    ],
)
async def test_a_plugin_that_is_not_described_is_refused(path: Path, given: object) -> None:
    assert ": exec" in str(await refused(write(path, kubeconfig({"exec": given}))))


async def test_a_plugin_may_give_a_token_beside_the_users_certificate(path: Path) -> None:
    user = program(path.parent, credential(token=TOKEN))
    user |= {"client-certificate-data": base64_of(CERTIFICATE), "client-key-data": base64_of(KEY)}
    loaded = await read(write(path, kubeconfig(user)))
    assert (token_of(loaded), loaded.credentials.client_certificate) == (TOKEN, CERTIFICATE)


#: Not expired, so that the library contacts no identity provider. Version 37 of the library has no azure any more.
ID_TOKEN = jwt(exp=4_000_000_000)
OIDC = {"auth-provider": {"name": "oidc", "config": {"id-token": ID_TOKEN}}}


async def test_a_legacy_auth_provider_from_any_directory_whatever_the_environment_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the working directory or in PYTHONPATH may take the place of a module."""
    for directory in (tmp_path, path.parent):
        for name in ("config", "kubernetes", "yaml", "json"):
            (directory / f"{name}.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    loaded = await read(write(path, kubeconfig(OIDC)))
    assert (token_of(loaded), loaded.program) == (ID_TOKEN, "oidc")
    assert loaded.files.keys() == {path}


async def test_no_secret_is_on_a_command_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def run(argv: tuple[str, ...], **_options: object) -> Completed:
        seen.extend(argv)
        return Completed(argv, 1, "", ID_TOKEN)

    monkeypatch.setattr(credentials, "run_command", run)
    assert "ended with code 1" in str(await refused(write(path, kubeconfig(OIDC))))
    assert seen
    assert ID_TOKEN not in "".join(seen)


async def test_without_the_library_an_auth_provider_names_what_is_missing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hiding = tmp_path / "hiding.py"
    hiding.write_text(
        "import runpy, sys\nsys.modules['kubernetes'] = None\n"
        f"runpy.run_path({auth_provider.__file__!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(auth_provider, "__file__", str(hiding))
    error = await refused(write(path, kubeconfig(OIDC)))
    assert "auth-provider oidc returned no credentials: the Python package 'kubernetes' is not installed" in str(error)


async def test_a_plugin_that_cannot_be_started_is_refused(path: Path) -> None:
    for change in (
        {"args": ["a\0b"]},
        {"env": [{"name": "A=B", "value": "c"}]},
        {"env": [{"name": "A", "value": "\0"}]},
    ):
        user = program(path.parent, credential(token=TOKEN))
        user["exec"] |= change
        assert "cannot be started" in str(await refused(write(path, json.dumps(yaml.safe_load(kubeconfig(user))))))


@pytest.mark.parametrize("text", ["x" * 300, "/" + "x" * 300, "a\0b", "a\nb"])
async def test_a_file_that_no_file_system_can_have_is_refused(path: Path, text: str) -> None:
    assert ": tokenFile" in str(await refused(write(path, json.dumps(yaml.safe_load(kubeconfig({"tokenFile": text}))))))


_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=300) | st.just("/etc"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_CLUSTER_KEYS = (
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
)
_USER_KEYS = (
    "token",
    "tokenFile",
    "client-certificate",
    "client-key-data",
    "client-key",
    "exec",
    "auth-provider",
    "as",
)


@given(
    st.dictionaries(st.sampled_from(_CLUSTER_KEYS), _VALUE, max_size=2),
    st.dictionaries(st.sampled_from(_USER_KEYS), _VALUE, max_size=3),
    st.dictionaries(st.sampled_from(("clusters", "users", "contexts", "current-context")), _VALUE, max_size=1),
)
def test_any_content_gives_credentials_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, cluster: Json, user: Json, changes: Json
) -> None:
    path = tmp_path_factory.mktemp("any") / "kubeconfig"
    data = yaml.safe_load(kubeconfig(user, cluster))
    path.write_text(json.dumps({**data, **changes}))
    found = trio.run(outcome, path)
    assert found.startswith(("http", str(path)))
    assert found.isprintable()


async def outcome(path: Path) -> str:
    """Return the server, or the error."""
    try:
        return (await read(path, programs=False)).credentials.server
    except LoadingError as error:
        return str(error)
