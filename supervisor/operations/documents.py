"""Configuration and desired state as plain documents for YAML and JSON, without secrets.

Comments of configuration files are not shown: in prose a secret cannot be recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from config.desired import DesiredState, Secret
from config.problems import Origin, Problem, ResourceId
from config.settings import Settings
from config.sources.static_files import is_router_file
from config.syntax.files import UnreadableFileError, list_directory, read_bounded
from config.syntax.frr_secrets import HIDDEN, redact
from config.syntax.yaml_reader import MAX_BYTES, InvalidYamlError, parse_yaml

#: The value of a key that contains one of these is a secret, unless it refers to a file or object that holds one.
_SECRET_WORDS = ("password", "secret", "token", "key-string")
_REFERENCES = ("passwordsecret", "passwordsecretref")


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, so that FRR configuration is readable."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def to_yaml(document: object) -> str:
    """Return a document as YAML, its members in their own order."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def desired_document(state: DesiredState) -> Any:
    """Return the desired state as mappings and lists; what is empty or absent is left out."""
    return _plain(state)


def problem_document(problem: Problem) -> dict[str, Any]:
    """Return a problem as a mapping; what it does not have is left out."""
    found = {
        "path": problem.origin.path,
        "line": problem.origin.line,
        "column": problem.origin.column,
        "severity": str(problem.severity),
        "kind": str(problem.kind or ""),
        "name": problem.name,
        "field": problem.field,
        "message": problem.message,
        "inForce": problem.in_force,
    }
    return {key: value for key, value in found.items() if value}


def _plain(value: object) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, Origin | ResourceId | Problem):
        members = ((item.name, getattr(value, item.name)) for item in fields(value))
        return {name: _plain(member) for name, member in members if member is not None and member != ()}
    return _scalar(value)


def _scalar(value: object) -> bool | int | float | str:
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool | int | float):
        return value
    return redact(value) if isinstance(value, str) else str(value)


def configuration_document(settings: Settings) -> dict[str, Any]:
    """Return the settings in force and the content of every configuration file that exists."""
    files = {str(settings.node_config_file): _file(settings.node_config_file)}
    try:
        names = list_directory(settings.configs_dir)
    except UnreadableFileError as error:
        files[str(settings.configs_dir)] = error.reason
    else:
        paths = [settings.configs_dir / name for name in names if is_router_file(name)]
        files |= {str(path): _file(path) for path in paths}
    return {"settings": settings.model_dump(mode="json", by_alias=True), "files": files}


def _file(path: Path) -> Any:
    """Return a file's content without secrets, or why it cannot be shown: broken text could hide one anywhere."""
    try:
        content, _ = read_bounded(path, MAX_BYTES)
        return without_secrets(parse_yaml(content, str(path)).data())
    except FileNotFoundError:
        return "does not exist"
    except UnreadableFileError as error:
        return error.reason
    except InvalidYamlError as error:
        return f"cannot be shown: {error.problems[0]}"


def without_secrets(value: Any) -> Any:
    """Return a decoded document with the values of secret keys and the secrets in FRR text replaced by stars."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if is_secret(key, member) else without_secrets(member) for key, member in value.items()}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def is_secret(key: object, value: object) -> bool:
    """Return whether a key's value is a secret, rather than the name of something that holds one."""
    word = str(key).lower()
    if word in _REFERENCES or value is None:
        return False
    return any(secret in word for secret in _SECRET_WORDS)
