"""Kubeconfigs of every kind, read by the official library: in the real child where the child matters, else in here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from actors.lib.kube import credentials
from actors.lib.kube.credentials import Loaded, LoadingError, load, remove_stale
from actors.lib.kube.kubeconfig_reader import digest, read
from supervisor.process.subprocesses import Completed
from tests.actors.lib.kube.kubeconfigs import (
    CA,
    CERTIFICATE,
    KEY,
    PLANTED,
    SERVER,
    TOKEN,
    base64_of,
    credential,
    hostbridge,
    jwt,
    kubeconfig,
    program,
)

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the kubeconfig goes; its directory holds nothing else."""
    directory = tmp_path / "credentials"
    directory.mkdir()
    return directory / "kubeconfig"


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process do what the child does: the same code, without a second for its start."""

    async def run(argv: Sequence[str], *, seconds: float) -> Completed:
        kubeconfig, scratch, programs = argv[-3:]
        document = await trio.to_thread.run_sync(
            lambda: read(Path(kubeconfig), Path(scratch), programs=programs == "yes")
        )
        return Completed(tuple(argv), 0, json.dumps(document), "")

    monkeypatch.setattr(credentials, "run_command", run)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    directory = tmp_path / "scratch"
    directory.mkdir()
    return directory


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def token_of(loaded: Loaded) -> str:
    assert loaded.credentials.token is not None
    return loaded.credentials.token.reveal()


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def refused(path: Path, seconds: float = 60.0) -> LoadingError:
    with pytest.raises(LoadingError) as caught:
        await load(path, seconds=seconds)
    shown = f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    assert not [secret for secret in PLANTED if secret in shown]
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    return caught.value


async def test_a_token_and_inline_certificates(path: Path, scratch: Path) -> None:
    user = {"client-certificate-data": base64_of(CERTIFICATE), "client-key-data": base64_of(KEY), "token": TOKEN}
    cluster = {"certificate-authority-data": base64_of(CA), "tls-server-name": "kubernetes"}
    write(path, kubeconfig(user, cluster))
    loaded = await load(path, scratch=scratch)
    found = loaded.credentials
    assert (found.server, found.source) == (SERVER, str(path))
    assert (found.ca, found.client_certificate, found.server_name) == (CA, CERTIFICATE, "kubernetes")
    assert found.client_key is not None
    assert found.client_key.reveal() == KEY
    assert token_of(loaded) == TOKEN
    assert (found.verify, found.expires_at, loaded.program) == (True, None, "")
    assert loaded.files == {path: digest(path)}
    assert not left_in(scratch)
    assert not [secret for secret in PLANTED if secret in repr(loaded)]


async def test_upstreams_credentials_proxy_whose_paths_are_those_of_its_container(path: Path) -> None:
    loaded = await load(hostbridge(path.parent))
    assert (loaded.credentials.ca, token_of(loaded)) == (CA, TOKEN)
    token, ca = path.with_name("token"), path.with_name("ca.crt")
    missing = dict.fromkeys((Path("/shared/token"), Path("/shared/ca.crt")), "missing")
    assert loaded.files == {**{file: digest(file) for file in (path, token, ca)}, **missing}
    assert loaded.private == (path, token)


@pytest.mark.usefixtures("in_process")
async def test_files_named_where_they_are_and_relative_to_the_kubeconfig(path: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    path.with_name("token").write_text("not this one")
    path.with_name("ca.crt").write_text(CA)
    write(path, kubeconfig({"tokenFile": str(tmp_path / "token")}, {"certificate-authority": "ca.crt"}))
    loaded = await load(path)
    assert (loaded.credentials.ca, token_of(loaded)) == (CA, TOKEN)


@pytest.mark.usefixtures("in_process")
async def test_the_token_file_counts_more_than_a_token(path: Path) -> None:
    path.with_name("token").write_text("fresh")
    write(path, kubeconfig({"token": TOKEN, "tokenFile": "token"}))
    assert token_of(await load(path)) == "fresh"


@pytest.mark.usefixtures("in_process")
async def test_the_current_of_several_contexts(path: Path) -> None:
    clusters = [{"name": name, "cluster": {"server": f"https://{name}"}} for name in ("a", "b")]
    users = [{"name": name, "user": {"token": f"token-{name}"}} for name in ("a", "b")]
    contexts = [{"name": name, "context": {"cluster": name, "user": name}} for name in ("a", "b")]
    write(path, kubeconfig(clusters=clusters, users=users, contexts=contexts, current="b"))
    loaded = await load(path)
    assert (loaded.credentials.server, token_of(loaded)) == ("https://b", "token-b")


@pytest.mark.usefixtures("in_process")
async def test_json_is_a_kubeconfig_too_and_tls_may_be_left_unverified(path: Path) -> None:
    write(
        path,
        '{"current-context": "x", "clusters": [{"name": "c", "cluster": {"server": "https://s/prefix/",'
        ' "insecure-skip-tls-verify": true}}], "users": [{"name": "u", "user": {"token": "t"}}],'
        ' "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}',
    )
    loaded = await load(path)
    assert (loaded.credentials.server, loaded.credentials.verify) == ("https://s/prefix", False)


@pytest.mark.usefixtures("in_process")
async def test_a_token_that_says_when_it_ends(path: Path) -> None:
    path.with_name("token").write_text(jwt(exp=2_000_000_000))
    write(path, kubeconfig({"tokenFile": "token"}))
    assert (await load(path)).credentials.expires_at == 2_000_000_000


async def test_a_program_that_gives_a_token_and_says_when_it_ends(path: Path) -> None:
    user = program(path.parent, credential(token=TOKEN, expirationTimestamp="2033-05-18T03:33:20Z"))
    loaded = await load(write(path, kubeconfig(user)))
    assert token_of(loaded) == TOKEN
    assert loaded.program == user["exec"]["command"]
    assert loaded.credentials.expires_at == 2_000_000_000 - credentials.EARLY_SECONDS
    assert Path(loaded.program) in loaded.files


@pytest.mark.usefixtures("in_process")
async def test_a_programs_credentials_with_a_short_life_are_renewed_at_half_of_it(path: Path) -> None:
    user = program(path.parent, credential(token=TOKEN, expirationTimestamp="2033-05-18T03:33:20Z"))
    loaded = await load(write(path, kubeconfig(user)), wall=lambda: 2_000_000_000 - 10)
    assert loaded.credentials.expires_at == 2_000_000_000 - 5


async def test_a_program_that_gives_a_certificate(path: Path, scratch: Path) -> None:
    user = program(path.parent, credential(clientCertificateData=CERTIFICATE, clientKeyData=KEY))
    loaded = await load(write(path, kubeconfig(user)), scratch=scratch)
    assert loaded.credentials.client_certificate == CERTIFICATE
    assert loaded.credentials.client_key is not None
    assert loaded.credentials.client_key.reveal() == KEY
    assert not left_in(scratch)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (f"echo no luck with {TOKEN} >&2; exit 3", "it ended with code 3"),
        (f"echo {TOKEN}", "what it printed is not JSON"),
        ('echo \'{"apiVersion": "v9", "kind": "ExecCredential", "status": {}}\'', "another API version"),
        ("echo '{}'", "not complete"),
        (credential(), "neither a token nor a certificate"),
        (credential(clientCertificateData=CERTIFICATE), "neither a token nor a certificate with a key"),
    ],
)
@pytest.mark.usefixtures("in_process")
async def test_a_program_that_fails_is_named_with_the_reason(path: Path, body: str, told: str) -> None:
    user = program(path.parent, body)
    user["exec"]["env"] = [{"name": "PASSWORD", "value": PLANTED[1]}]
    error = await refused(write(path, kubeconfig(user)))
    assert user["exec"]["command"] in str(error)
    assert told in str(error)
    assert error.passing


@pytest.mark.usefixtures("in_process")
async def test_a_program_that_is_not_there_is_looked_for(path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./not-there"}}
    error = await refused(write(path, kubeconfig(user)))
    assert "No such file or directory" in str(error)
    assert error.files[path.parent / "not-there"] == "missing"


async def test_a_program_that_hangs_is_not_waited_for(path: Path, scratch: Path) -> None:
    write(path, kubeconfig(program(path.parent, "sleep 1000")))
    with pytest.raises(LoadingError, match=r"took longer than 0\.3 s: a program that it names hangs") as caught:
        await load(path, scratch=scratch, seconds=0.3)
    assert caught.value.passing
    assert caught.value.files == {path: digest(path)}
    assert not left_in(scratch)


async def test_a_cancelled_reading_leaves_nothing_behind(path: Path, scratch: Path) -> None:
    fifo = path.with_name("fifo")
    user = program(path.parent, f"mkfifo {fifo}; cat {fifo} & wait")
    write(path, kubeconfig(user))
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            await load(path, scratch=scratch)

        nursery.start_soon(read)
        while not await running(f"cat {fifo}"):  # noqa: ASYNC110 - another process starts it
            await trio.sleep(0.05)
        assert left_in(scratch)
        nursery.cancel_scope.cancel()
    assert not left_in(scratch)
    assert not await running(f"cat {fifo}")


async def running(command: str) -> bool:
    done = await trio.run_process(["pgrep", "-f", f"^{command}$"], capture_stdout=True, check=False)
    return bool(done.stdout)


async def test_programs_are_not_run_and_keys_not_read_by_who_only_looks(path: Path, scratch: Path) -> None:
    ran = path.with_name("ran")
    user = program(path.parent, f"touch {ran}")
    user |= {"client-certificate-data": base64_of(CERTIFICATE), "client-key-data": base64_of(KEY)}
    loaded = await load(write(path, kubeconfig(user)), scratch=scratch, programs=False)
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
    "unknown context": (kubeconfig(current="other"), "Expected object with name other in"),
    "no such cluster": (kubeconfig(clusters=[{"name": "d", "cluster": {"server": SERVER}}]), "name c in"),
    "no such user": (kubeconfig(users=[]), "names 'u', which is not among its users"),
    "no server": (kubeconfig(cluster={"server": ""}), "has no server"),
    "users of a wrong shape": (kubeconfig(users={"u": {"token": TOKEN}}), "cannot be understood"),
    "contexts of a wrong shape": (kubeconfig(contexts="x"), "cannot be understood"),
    "user of a wrong shape": (kubeconfig(users=[{"name": "u", "user": TOKEN}]), "which is not among its users"),
    "missing token file": (kubeconfig({"tokenFile": "/none/token"}), "tokenFile names /none/token, which is neither"),
    "a token where its file should be": (kubeconfig({"tokenFile": TOKEN}), "tokenFile names a file, which is not"),
    "a directory": (kubeconfig({"tokenFile": "/etc"}), "tokenFile names /etc, which is not a regular file"),
    "no PEM": (
        kubeconfig(cluster={"certificate-authority-data": base64_of(TOKEN)}),
        "its certificate-authority is not a",
    ),
    "a word for a truth": (kubeconfig(cluster={"insecure-skip-tls-verify": "no"}), "must be true or false"),
    "no base64": (kubeconfig({"client-key-data": "x", "client-certificate-data": "y"}), "should be base64 is not"),
    "password": (kubeconfig({"username": "u", "password": PLANTED[1]}), "takes no passwords since version 1.19"),
    "impersonation": (kubeconfig({"token": TOKEN, "as": "joe"}), "as: impersonation"),
    "proxy": (kubeconfig(cluster={"proxy-url": f"http://u:{PLANTED[1]}@p"}), "proxy-url: a node reaches"),
    "password in the URL": (kubeconfig(cluster={"server": f"https://u:{PLANTED[1]}@s"}), "user or password"),
    "no URL": (kubeconfig(cluster={"server": "kubernetes"}), "must be https://HOST"),
    "bad port": (kubeconfig(cluster={"server": "https://s:99999"}), "not a URL"),
    "token of two lines": (kubeconfig({"token": f"{TOKEN}\n{TOKEN}"}), "characters that no token has"),
    "key without certificate": (kubeconfig({"client-key-data": base64_of(KEY)}), "without a client-certificate"),
    "provider without credentials": (kubeconfig({"auth-provider": {"name": "gcp"}}), "gcp gave no credentials"),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.usefixtures("in_process")
async def test_what_is_wrong_is_said_in_one_line_without_a_secret(
    path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Google's library would look for its metadata server.
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    text, told = BROKEN[what]
    error = await refused(write(path, text))
    assert told in str(error)
    assert error.files[path] == digest(path)


@pytest.mark.usefixtures("in_process")
async def test_an_empty_token_file_is_named_and_looked_at(path: Path) -> None:
    """A proxy that does not write atomically leaves one for a moment."""
    token = path.with_name("token")
    token.write_text(" \n")
    error = await refused(write(path, kubeconfig({"tokenFile": "/shared/token"})))
    assert f"the token file {token} is empty" in str(error)
    assert token in error.files


@pytest.mark.usefixtures("in_process")
async def test_a_missing_file_is_looked_for_in_both_places(path: Path) -> None:
    error = await refused(write(path, kubeconfig({"tokenFile": "/shared/token"})))
    assert set(error.files) == {path, Path("/shared/token"), path.with_name("token")}


@pytest.mark.usefixtures("in_process")
async def test_a_kubeconfig_that_went_away_meanwhile(path: Path) -> None:
    assert "is not there" in str(await refused(path))


async def test_a_child_that_dies_says_nothing_but_how(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, kubeconfig())
    dying = f"import sys; print({TOKEN!r}); sys.exit({TOKEN!r})"
    monkeypatch.setattr(credentials, "_START", dying)
    assert "failed (exit code 1)" in str(await refused(path))


async def test_a_child_that_is_killed_or_prints_nonsense(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for returncode, text, told in ((-9, "", "signal 9"), (0, f"[{TOKEN}", "exit code 0"), (0, "[]", "exit code 0")):

        async def run(*_words: object, code: int = returncode, said: str = text, **_options: object) -> Completed:
            return Completed(("python3",), code, said, TOKEN)

        monkeypatch.setattr(credentials, "run_command", run)
        assert told in str(await refused(path))


async def test_without_the_library_it_says_which_is_missing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, kubeconfig())
    hiding = "import sys; sys.modules['kubernetes'] = None; "
    monkeypatch.setattr(credentials, "_START", hiding + credentials._START)
    assert "the Python package 'kubernetes' is not installed" in str(await refused(path))


async def test_it_works_where_the_package_installs_it(path: Path, tmp_path: Path) -> None:
    """Debian's private modules: found by their own place, from a process that knows nothing else."""
    installed = tmp_path / "usr" / "share" / "openperouter"
    for package in ("actors", "config", "supervisor"):
        shutil.copytree(ROOT / package, installed / package, ignore=shutil.ignore_patterns("__pycache__"))
    write(path, kubeconfig())
    program_text = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "import pathlib, trio\n"
        "from actors.lib.kube.credentials import ROOT, load\n"
        "print(ROOT, trio.run(load, pathlib.Path(sys.argv[1])).credentials.server)"
    )
    argv = [sys.executable, "-I", "-c", program_text, str(path)]
    done = await trio.run_process(argv, capture_stdout=True, cwd="/")
    assert done.stdout.decode().split() == [str(installed), SERVER]


@pytest.mark.usefixtures("in_process")
async def test_a_comment_in_a_certificate_is_not_its_end(path: Path) -> None:
    path.with_name("ca.crt").write_text(f"# Autorité\n{CA}")
    write(path, kubeconfig(cluster={"certificate-authority": "ca.crt"}))
    assert (await load(path)).credentials.ca == f"# Autorit\n{CA}"


async def test_it_works_from_any_directory_whatever_the_environment_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the working directory or in PYTHONPATH may take the place of a module."""
    for name in ("config", "kubernetes", "yaml", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert token_of(await load(write(path, kubeconfig()))) == TOKEN


def test_no_secret_is_on_a_command_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def run(argv: list[str], **options: object) -> Completed:
        seen.extend([*argv, repr(options)])
        return Completed(tuple(argv), 1, "", "")

    monkeypatch.setattr(credentials, "run_command", run)
    write(path, kubeconfig())
    with pytest.raises(LoadingError):
        trio.run(load, path)
    assert seen
    assert TOKEN not in "".join(seen)


def test_this_process_imports_neither_the_library_nor_an_http_client() -> None:
    """A node without an API server pays for neither."""
    program_text = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import actors.api_wait.actor\n"
        "print([name for name in ('kubernetes', 'httpx', 'requests', 'urllib3', 'google') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program_text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_child_imports_no_more_of_us_than_it_needs() -> None:
    program_text = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import actors.lib.kube.kubeconfig_reader\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('supervisor', 'trio', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program_text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_a_killed_process_left_is_removed(scratch: Path) -> None:
    left = scratch / f"{credentials.SCRATCH_PREFIX}abc"
    left.mkdir()
    (left / "key").write_text(KEY)
    (scratch / "state.json").write_text("{}")
    remove_stale(scratch)
    assert left_in(scratch) == [scratch / "state.json"]
    remove_stale(scratch / "none")
