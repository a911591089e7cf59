"""The shells' completions have each command and each option, and the shells that are here accept them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest

from tests.packaging.programs import PACKAGING, load

COMPLETION = PACKAGING / "completion"
generate = partial(load, "completion/generate.py")


@cache
def scripts() -> dict[str, str]:
    found: dict[str, str] = generate().completions()
    return found


@cache
def options() -> dict[str, set[str]]:
    """Return each command's options as its help shows them."""
    verbs = generate().verbs(generate().build_parser())
    option = re.compile(r"^  (?:(-\w)(?: [A-Z]+)?, )?(--[\w-]+)", re.M)
    found = {name: set(option.findall(verb.format_help())) for name, verb in verbs.items()}
    assert len(found) > 10
    return {name: {option for pair in pairs for option in pair if option} for name, pairs in found.items()}


@pytest.mark.parametrize("name", sorted(options()))
def test_bash_has_the_command_and_its_options(name: str) -> None:
    script = scripts()["openperouter.bash"]
    offered = re.search(rf"^_shtab_openperouter_{name}_option_strings=\((.*)\)$", script, re.M)
    assert offered is not None
    assert set(re.findall(r"'([^']*)'", offered[1])) == options()[name]


@pytest.mark.parametrize("name", sorted(options()))
def test_zsh_has_the_command_and_its_options(name: str) -> None:
    script = scripts()["_openperouter"]
    assert re.search(rf'^    "{name}:[^"]+"$', script, re.M)
    [block] = re.findall(rf"^_shtab_openperouter_{name}_options=\(\n(.*?)^\)", script, re.M | re.S)
    offered = re.findall(r'^  (?:"[^"]*")??(?:\{([^}]*)\}"|"\*?(-[\w-]+))', block, re.M)
    assert {option for several, one in offered for option in (several or one).split(",")} == options()[name]
    arguments = re.findall(r'^  ":.*$', block, re.M)
    assert len(arguments) == len(set(arguments))


@pytest.mark.parametrize("name", sorted(options()))
def test_fish_has_the_command_and_its_options(name: str) -> None:
    script = scripts()["openperouter.fish"]
    assert re.search(rf" -a {name} -d '[^']", script)
    lines = re.findall(rf"^complete -c openperouter -n '__fish_seen_subcommand_from {name}' (-.*?) -d ", script, re.M)
    offered = {f"-{one}" for line in lines for one in re.findall(r"-s (\w)", line)}
    offered |= {f"--{one}" for line in lines for one in re.findall(r"-l ([\w-]+)", line)}
    assert offered == options()[name]


def test_fish_offers_files_and_words_where_they_are_taken() -> None:
    script = scripts()["openperouter.fish"]
    assert "'__fish_seen_subcommand_from validate' -F\n" in script
    assert "'__fish_seen_subcommand_from bundle' -l output -r -F " in script
    assert "'__fish_seen_subcommand_from run' -l log-level -x -a 'debug info warning error' " in script
    [subjects] = re.findall(
        r"'__fish_seen_subcommand_from show; and not __fish_seen_subcommand_from (.*)' -a '(.*)'", script
    )
    assert subjects[0] == subjects[1]
    assert {"desired", "peer-config"} <= set(subjects[0].split())


def test_what_fish_would_interpret_is_quoted() -> None:
    assert generate().quoted("the node's\n  a\\b $x") == "'the node\\'s a\\\\b $x'"


@pytest.mark.parametrize(("shell", "name"), [("zsh", "_openperouter"), ("fish", "openperouter.fish")])
def test_the_shell_accepts_it(shell: str, name: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    (tmp_path / name).write_text(scripts()[name])
    done = subprocess.run([program, "-n", str(tmp_path / name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def install(python: str, destination: Path) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(COMPLETION / "install.sh"), str(destination)]
    return subprocess.run(
        command, env={**os.environ, "PYTHON": python}, capture_output=True, text=True, check=True, timeout=60
    )


def test_they_are_installed_where_the_package_has_them(tmp_path: Path) -> None:
    install(sys.executable, tmp_path)
    installed = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    assert installed.keys() == {
        "usr/share/bash-completion/completions/openperouter",
        "usr/share/zsh/vendor-completions/_openperouter",
        "usr/share/fish/vendor_completions.d/openperouter.fish",
    }
    for path in installed.values():
        assert path.read_text() in scripts().values()
        assert path.stat().st_mode & 0o777 == 0o644
    packaged = (PACKAGING.parent / "debian/openperouter.install").read_text()
    for name in ("_openperouter", "openperouter.fish"):
        [target] = re.findall(rf"^debian/generated/{name} (\S+)$", packaged, re.M)
        assert f"{target}/{name}" in installed


def test_without_shtab_there_is_a_message_and_no_failure(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    done = install(str(python), tmp_path / "root")
    assert "no completion is installed" in done.stderr
    assert not (tmp_path / "root").exists()
