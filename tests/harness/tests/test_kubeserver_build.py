"""How the API servers come to be, with a stand-in for Go: what is found, fetched, checked, kept and thrown away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from kubeserver import build, clients, golang
from kubeserver.errors import ClusterError, NoGoError

RELEASE = build.Release("1.99.2", "h1:right")
SERVER = build.api_server(RELEASE)
STAGING = "".join(f"\tk8s.io/part-{number} => ./staging/src/k8s.io/part-{number}\n" for number in range(30))
UPSTREAM = f"module k8s.io/kubernetes\n\ngo 1.26.0\n\nrequire (\n\ta.b/c v1.0.0\n)\n\nreplace (\n{STAGING})\n"
#: Answers as Go does; what it "builds" is a program that says its version.
GO = """
    #!/bin/sh
    echo "$@" >>{log}
    case $1 in
    version) echo "go version go{version} linux/amd64" ;;
    env) printf 'linux\\namd64\\n' ;;
    mod) echo '{answer}' ;;
    build)
        {fails}
        cp go.mod {kept}
        while [ "$1" != -o ]; do shift; done
        printf '#!/bin/sh\\necho {says}\\n' >"$2"
        chmod +x "$2" ;;
    esac
"""
MakeGo = Callable[..., Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("OPENPEROUTER_CACHE", str(cache))
    return cache


@pytest.fixture
def make_go(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> MakeGo:
    """Return what puts a stand-in first in PATH, and hides this machine's own Go."""
    monkeypatch.setattr(golang, "_ARCHIVE", tmp_path / "nothing")
    monkeypatch.setattr(golang, "packaged_version", lambda: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    module = tmp_path / "kubernetes"
    module.mkdir()
    (module / "go.mod").write_text(UPSTREAM)
    (module / "go.sum").write_text("a.b/c v1.0.0 h1:x\n")

    def make(
        version: str = "1.26.1", *, checksum: str = RELEASE.checksum, says: str = "Kubernetes v1.99.2", fails: str = ""
    ) -> Path:
        answer = json.dumps({"Dir": str(module), "Sum": checksum})
        words = {"log": tmp_path / "log", "kept": tmp_path / "go.mod", "version": version, "answer": answer}
        program = tmp_path / "go"
        program.write_text(dedent(GO).lstrip().format(**words, says=says, fails=fails))
        program.chmod(0o755)
        return program

    return make


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "kube-apiserver").iterdir())


def test_a_server_is_built_once_and_nothing_else_stays(make_go: MakeGo, cache: Path, tmp_path: Path) -> None:
    make_go()
    [program] = build.ensure([SERVER])
    assert program == cache / "kube-apiserver/1.99.2/kube-apiserver"
    assert leftovers(cache) == ["1.99.2"]
    assert [path.name for path in program.parent.iterdir()] == ["kube-apiserver"]
    asked = (tmp_path / "log").read_text()
    assert build.ensure([SERVER]) == [program]
    assert (tmp_path / "log").read_text() == asked


def test_two_programs_of_a_version_are_built_each_by_itself(make_go: MakeGo, cache: Path) -> None:
    make_go()
    controllers = build.Program("kube-controller-manager", RELEASE)
    assert build.ensure([SERVER, controllers]) == [
        cache / "kube-apiserver/1.99.2/kube-apiserver",
        cache / "kube-controller-manager/1.99.2/kube-controller-manager",
    ]
    assert leftovers(cache) == ["1.99.2"]


def test_the_modules_are_kubernetes_own_versions(make_go: MakeGo, tmp_path: Path) -> None:
    make_go()
    build.ensure([SERVER])
    text = (tmp_path / "go.mod").read_text()
    assert "staging" not in text
    assert "\tk8s.io/part-7 => k8s.io/part-7 v0.99.2\n" in text
    assert "a.b/c v1.0.0" in text
    assert text.startswith("module build\n")
    assert text.endswith("require k8s.io/kubernetes v1.99.2\n")


def test_a_client_has_kubernetes_versions_of_what_both_need(
    make_go: MakeGo, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "NEWEST", RELEASE)
    client = clients.Client("tool", "d.e/tool", "v2.0.0", RELEASE.checksum, "d.e/tool/cmd", (), ("version",))
    make_go(says="v2.0.0")
    assert build.ensure([client]) == [cache / "tool/v2.0.0/tool"]
    text = (tmp_path / "go.mod").read_text()
    assert text.endswith("replace a.b/c => a.b/c v1.0.0\nrequire d.e/tool v2.0.0\n")
    assert "replace k8s.io/kubernetes" not in text
    assert leftovers(cache) == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("\ta.b/c v1.0.0", "replace a.b/c => a.b/c v1.0.0\n"),
        ("\ta.b/c/v2 v2.1.0+incompatible // indirect", "replace a.b/c/v2 => a.b/c/v2 v2.1.0+incompatible\n"),
        ("\ta.b/c v0.0.0-2026-abc", "replace a.b/c => a.b/c v0.0.0-2026-abc\n"),
        ("\tk8s.io/part-1 v0.0.0", ""),
        ("\tk8s.io/part-1 => k8s.io/part-1 v0.99.2", ""),
    ],
)
def test_versions_are_kept(line: str, wanted: str) -> None:
    assert build.pinned(f"{line}\n") == f"{line}\n{wanted}"


def test_a_go_mod_of_another_form_is_noticed() -> None:
    with pytest.raises(ClusterError, match="only 0 staging modules"):
        build.module_file("module k8s.io/kubernetes\n", "1.99.2")


def test_something_else_under_the_same_version_is_not_built(make_go: MakeGo, cache: Path, tmp_path: Path) -> None:
    make_go(checksum="h1:wrong")
    with pytest.raises(ClusterError, match="has the checksum h1:wrong, and not h1:right"):
        build.ensure([SERVER])
    assert build.built(SERVER) is None
    assert "build" not in [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]


def test_a_failed_build_says_why_and_keeps_only_what_helps_the_next_one(make_go: MakeGo, cache: Path) -> None:
    make_go(fails="echo 'no space left' >&2; exit 1")
    with pytest.raises(ClusterError, match="no space left"):
        build.ensure([SERVER])
    assert leftovers(cache) == ["go"]
    make_go()
    build.ensure([SERVER])
    assert leftovers(cache) == ["1.99.2"]


def test_a_program_that_says_another_version_is_not_kept(make_go: MakeGo, cache: Path) -> None:
    make_go(says="Kubernetes v0.0.0")
    with pytest.raises(ClusterError, match=r"says: Kubernetes v0\.0\.0"):
        build.ensure([SERVER])
    assert build.built(SERVER) is None


def test_an_old_compiler_fetches_a_newer_one(make_go: MakeGo, tmp_path: Path) -> None:
    make_go("1.19.8")
    newer = tmp_path / "kubernetes/bin"
    newer.mkdir()
    (newer / "go").write_text("a program")
    go = golang.prepare(tmp_path / "scratch")
    assert go.program == newer / "go"
    assert go.program.stat().st_mode & 0o111
    assert go.environment["GOROOT"] == str(newer.parent)
    asked = (tmp_path / "log").read_text().splitlines()[-1]
    assert asked == f"mod download -json golang.org/toolchain@v0.0.1-go{golang.TOOLCHAIN}.linux-amd64"


@pytest.mark.parametrize("version", ["1.12.17", "nothing"])
def test_without_a_compiler_the_reason_names_what_was_looked_at(make_go: MakeGo, version: str) -> None:
    program = make_go(version)
    with pytest.raises(NoGoError) as caught:
        build.ensure([SERVER])
    assert str(program) in str(caught.value)
    assert "golang-go here is none" in str(caught.value)


@pytest.mark.parametrize(
    ("ours", "debians", "wanted"),
    [("1.26.1", (1, 24), []), ("1.12.1", (1, 19), ["golang-go"]), ("1.12.1", (1, 11), []), ("1.12.1", None, [])],
)
def test_debians_compiler_is_asked_for_where_it_helps(
    make_go: MakeGo,
    monkeypatch: pytest.MonkeyPatch,
    ours: str,
    debians: tuple[int, int] | None,
    wanted: list[str],
) -> None:
    make_go(ours)
    monkeypatch.setattr(golang, "packaged_version", lambda: debians)
    assert golang.packages() == wanted
