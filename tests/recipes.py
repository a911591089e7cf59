"""The recipes' pages as data: the blocks of a language, and the documents of those in YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

RECIPES: Final = Path(__file__).parents[1] / "docs" / "recipes"
OUR_GROUP: Final = "network.openperouter.io/"


def blocks(page: str, language: str) -> list[str]:
    """Return a page's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (RECIPES / page).read_text(), re.MULTILINE | re.DOTALL)


def block(page: str, language: str) -> str:
    """Return a page's one block of a language."""
    [text] = blocks(page, language)
    return text


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a YAML text."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def router_file(page: str) -> str:
    """Return the page's router file: its one YAML block that is not an object."""
    [text] = [one for one in blocks(page, "yaml") if "apiVersion:" not in one]
    return text


def objects(page: str) -> list[dict[str, Any]]:
    """Return the objects of a page, the router's included."""
    return [one for text in blocks(page, "yaml") if "apiVersion:" in text for one in documents(text)]


def find(page: str, kind: str) -> dict[str, Any]:
    """Return a page's one object of a kind that is not the router's."""
    [found] = [one for one in objects(page) if one["kind"] == kind and not one["apiVersion"].startswith(OUR_GROUP)]
    return found
