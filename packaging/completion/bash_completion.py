"""Write the bash completion, made from the parser that also makes ``--help``: ``generate.py DIRECTORY``.

The result is a shell function with everything written out: completing starts no program and needs no daemon.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from supervisor.cli.program import build_parser  # noqa: E402

HEADER = """\
# bash completion for openperouter, generated from its command line; do not edit.
_openperouter() {
    local cur prev words cword
    _init_completion || return

    local verb= i
    for ((i = 1; i < cword; i++)); do
        case ${words[i]} in
"""
MIDDLE = """\
        esac
    done

    case $prev in
"""
FOOTER = """\
    esac
}
complete -F _openperouter openperouter
"""


def script(parser: argparse.ArgumentParser) -> str:
    """Return the completion script."""
    verbs = commands(parser)
    takers = sorted({name for one in (parser, *verbs.values()) for name in takes_file(one)})
    known = "|".join(verbs)
    lines = [
        f"            {known}) verb=${{words[i]}}; break ;;",
        f"            {'|'.join(takers)}) i=$((i + 1)) ;;",
    ]
    values = [
        f"        {'|'.join(takers)}) _filedir; return ;;",
        *(
            f"        {name}) COMPREPLY=($(compgen -W '{words}' -- \"$cur\")); return ;;"
            for name, words in choosers(verbs)
        ),
    ]
    body = [f"        {name}) {reply(one)} ;;" for name, one in verbs.items()]
    top = f"        *) {compgen([*options(parser), *verbs])} ;;"
    case = ["    esac", "", "    case $verb in", *body, top]
    return HEADER + "\n".join(lines) + "\n" + MIDDLE + "\n".join([*values, *case]) + "\n" + FOOTER


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the verbs by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of one parser."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield action


def options(parser: argparse.ArgumentParser) -> list[str]:
    """Return the names of a parser's options, short ones only where there is no long one."""
    return [action.option_strings[-1] for action in actions(parser) if action.option_strings]


def is_file(action: argparse.Action) -> bool:
    """Whether an option or argument takes a path."""
    return action.type is Path or "FILE" in str(action.metavar or "")


def takes_file(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options of a parser that are followed by a path."""
    return [name for action in actions(parser) if is_file(action) for name in action.option_strings]


def choosers(verbs: dict[str, argparse.ArgumentParser]) -> list[tuple[str, str]]:
    """Return the options that are followed by one of a few words, with these."""
    found = {
        name: " ".join(str(choice) for choice in action.choices)
        for verb in verbs.values()
        for action in actions(verb)
        if action.choices is not None
        for name in action.option_strings
    }
    return sorted(found.items())


def reply(verb: argparse.ArgumentParser) -> str:
    """Return the command that completes what may follow a verb."""
    positional = [action for action in actions(verb) if not action.option_strings]
    words = [*options(verb), *(str(choice) for action in positional for choice in action.choices or ())]
    nested = [*commands(verb)]
    files = "; [[ $cur == -* ]] || _filedir" if any(is_file(action) for action in positional) else ""
    return compgen([*words, *nested]) + files


def compgen(words: list[str]) -> str:
    """Return the command that offers words."""
    return f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$cur\"))"


def main() -> int:
    """Write the script."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "openperouter.bash").write_text(script(build_parser()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
