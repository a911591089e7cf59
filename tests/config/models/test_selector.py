"""Label selectors have Kubernetes' semantics."""

from __future__ import annotations

from typing import Any

import pytest

from config.models import LabelSelector
from config.models.selector import selects

LABELS = {"zone": "a", "gpu": ""}


def expression(operator: str, key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator} | ({"values": list(values)} if values else {})]}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"matchLabels": {"zone": "a"}}, True),
        ({"matchLabels": {"zone": "b"}}, False),
        ({"matchLabels": {"none": ""}}, False),
        (expression("In", "zone", "a", "b"), True),
        (expression("In", "none", "a"), False),
        (expression("NotIn", "zone", "a"), False),
        (expression("NotIn", "none", "a"), True),
        (expression("Exists", "gpu"), True),
        (expression("Exists", "none"), False),
        (expression("DoesNotExist", "gpu"), False),
        (expression("DoesNotExist", "none"), True),
        ({"matchLabels": {"zone": "a"}} | expression("Exists", "none"), False),
    ],
)
def test_a_selector_selects(selector: dict[str, Any], selected: bool) -> None:
    assert selects(LabelSelector.model_validate(selector), LABELS) is selected


def test_no_selector_selects_every_node() -> None:
    assert selects(None, {})


@pytest.mark.parametrize(
    "selector", [expression("In", "zone"), expression("Exists", "zone", "a"), expression("Like", "z")]
)
def test_a_selector_that_cannot_be_evaluated_is_invalid(selector: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        LabelSelector.model_validate(selector)
