"""What a forge reads: the workflow runs all of ``make test``, the hooks run what exists, the forms are complete."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from .sources import ROOT

FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
#: What "make test" adds up.
PARTS = set(re.findall(r"summary\.py \$\(RESULTS\) (.*)$", MAKEFILE, re.M)[0].split())


def load(path: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return document


def test_the_workflow_runs_each_part_of_make_test() -> None:
    jobs = load(".github/workflows/ci.yml")["jobs"]
    targets = set(jobs["parts"]["strategy"]["matrix"]["target"])
    commands = " ".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    targets |= set(re.findall(r"make --no-print-directory ([\w-]+)", commands))
    assert {name.removeprefix("test-") for name in targets} == PARTS | {"check-deb"}
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, re.M), target


def test_the_workflow_may_only_read() -> None:
    workflow = load(".github/workflows/ci.yml")
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and job["timeout-minutes"] for job in workflow["jobs"].values())


def test_each_hook_runs_what_is_here() -> None:
    [repository] = load(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        program, *words = hook["entry"].split()
        assert (ROOT / program).exists()
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_each_form_asks_for_something_and_its_questions_differ(form: Any) -> None:
    document = yaml.safe_load(form.read_text())
    questions = [part for part in document["body"] if part["type"] != "markdown"]
    assert any(part.get("validations", {}).get("required") for part in questions)
    assert len({part["id"] for part in questions}) == len(questions)
