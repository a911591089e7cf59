"""Finds the secrets stored on this node, so that they can be kept out of the archive wherever they occur.

Every place that may contain a secret is read as plain text, not as configuration: a broken file has secrets as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from actors.static_config.trial import SAVED
from config.settings import Settings
from config.syntax.files import UnreadableFileError, read_bounded
from config.syntax.frr_secrets import HIDDEN, redact
from config.syntax.secret_files import SECRETS_DIRECTORY
from config.syntax.yaml_reader import InvalidYamlError, parse_yaml

from ..documents import is_secret

#: Larger files are not ours.
_MAX_BYTES: Final = 4 * 1024 * 1024
#: ``password: x`` of our configuration, quoted or not, commented out or not, in block or flow style, in JSON as well.
_IN_YAML: Final = re.compile(
    r"[\w-]*(?:password|passwd|secret|token|key-string)[\w-]*[\"']?[ \t]*:[ \t]*"
    r"(?:\"(?P<double>(?:[^\"\\\n]|\\.)*)\"|'(?P<single>(?:[^'\n]|'')*)'|(?P<plain>[^\s\"'{[|>&!#][^\n]*))",
    re.IGNORECASE,
)
_NO_SECRET: Final = re.compile(r"password-?_?secret", re.IGNORECASE)
#: FRR's type of an encrypted password, before the password itself.
_TYPE: Final = re.compile(r"^\d\s+(?=\S)")


def known_secrets(settings: Settings, running: str = "") -> frozenset[str]:
    """Return every secret in configuration files, their last good contents, password files and FRR's configuration.

    ``running`` is FRR's running configuration, if FRR answered.
    """
    frr = settings.frr_etc_dir / settings.frr_pathspace
    texts = [
        *(_text(path) for path in _configuration(settings)),
        *_remembered(settings.state_dir),
        *_remembered(settings.run_dir),
        *(_text(path) for path in sorted(frr.glob("*.conf*"))),
        *(_text(path) for path in sorted((settings.run_dir / "frr").glob("*"))),
        running,
    ]
    passwords = (_text(path) for path in sorted((settings.configs_dir / SECRETS_DIRECTORY).glob("*")))
    found = {secret for text in texts for secret in _secrets_in(text)}
    found.update(line.strip() for text in passwords for line in text.splitlines())
    return frozenset(secret for secret in found if secret and secret != HIDDEN)


def _secrets_in(text: str) -> Iterator[str]:
    yield from secrets_in_yaml(text)
    yield from secrets_in_document(text)
    yield from secrets_in_frr(text)


def _configuration(settings: Settings) -> Iterator[Path]:
    yield settings.node_config_file
    # Also backups and files under another name, which editors leave here.
    yield from sorted(settings.configs_dir.glob("*"))


def _remembered(state_dir: Path) -> Iterator[str]:
    """Yield what a state directory has of configuration files: last good ones, trials, what trials replaced.

    Also each text inside of JSON: there a file's lines are one line, and its quotes are escaped.
    """
    for path in sorted((*state_dir.glob("*.json"), *(state_dir / SAVED).glob("*/*"))):
        text = _text(path)
        yield text
        try:
            yield from _texts_in(json.loads(text))
        except (ValueError, RecursionError):
            continue


def _texts_in(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for member in data.values():
            yield from _texts_in(member)
    elif isinstance(data, list):
        for member in data:
            yield from _texts_in(member)


def _text(path: Path) -> str:
    try:
        return read_bounded(path, _MAX_BYTES)[0].decode(errors="replace")
    except (FileNotFoundError, UnreadableFileError):
        # What we cannot read we cannot put into the archive either.
        return ""


def secrets_in_yaml(text: str) -> Iterator[str]:
    """Yield the values of keys named like passwords; of a plain one also the part before a comment."""
    for match in _IN_YAML.finditer(text):
        if _NO_SECRET.match(match[0].lstrip("\"'")):
            continue
        if match["double"] is not None:
            yield match["double"]
            yield re.sub(r"\\(.)", r"\1", match["double"])
        elif match["single"] is not None:
            yield match["single"].replace("''", "'")
        elif match["plain"] is not None:
            plain = match["plain"].rstrip()
            yield from (plain, re.split(r"\s#|[,}]", plain)[0].strip())


def secrets_in_document(text: str) -> Iterator[str]:
    """Yield the same from the parsed YAML: blocks and values of several lines as well."""
    try:
        data = parse_yaml(text.encode(), "").data()
    except InvalidYamlError:
        return
    yield from _values(data, secret=False)


def _values(data: object, *, secret: bool) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, member in data.items():
            yield from _values(member, secret=secret or is_secret(key, member))
    elif isinstance(data, list):
        for member in data:
            yield from _values(member, secret=secret)
    elif secret and data is not None:
        yield from (str(data), *str(data).splitlines())


def secrets_in_frr(text: str) -> Iterator[str]:
    """Yield what FRR's grammar has after words that introduce a secret."""
    for line in text.splitlines():
        hidden = redact(line)
        if hidden == line:
            continue
        # The number before an encrypted password is not part of it, and neither is what may follow the word.
        secret = line[len(hidden) - len(HIDDEN) :].strip()
        bare = _TYPE.sub("", secret)
        yield from (secret, bare)
        # In a comment's prose the next word is seldom a secret; hiding it everywhere would make the archive useless.
        prose = line.lstrip().startswith(("#", "!"))
        yield from (word for word in bare.split()[:1] if not prose or not word.isalpha())
