"""Label selectors have Kubernetes' semantics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from config.models import LabelSelector
from config.models.selector import selects

LABELS = {"zone": "a", "gpu": ""}


def expression(operator: str, key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator} | ({"values": list(values)} if values else {})]}


def both(*selectors: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": [one for selector in selectors for one in selector["matchExpressions"]]}


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
        (both(expression("In", "zone", "a", "b"), expression("In", "zone", "a", "c")), True),
        (both(expression("In", "zone", "a", "b"), expression("In", "zone", "b", "c")), False),
        (both(expression("NotIn", "zone", "b"), expression("NotIn", "zone", "a")), False),
        (both(expression("In", "zone", "a", "b"), expression("NotIn", "zone", "b")), True),
        (both(expression("In", "zone", "a", "b"), expression("NotIn", "zone", "a")), False),
        (both(expression("Exists", "zone"), expression("DoesNotExist", "zone")), False),
    ],
)
def test_a_selector_selects(selector: dict[str, Any], selected: bool) -> None:
    assert selects(LabelSelector.model_validate(selector), LABELS) is selected


class Value(str):
    """A label's value that counts its comparisons."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Value.comparisons += 1
        return str.__eq__(self, other)


class Labels(Mapping[str, str]):
    """Labels that count how often they are looked at."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.looks = 0

    def __getitem__(self, key: str) -> str:
        self.looks += 1
        return self.labels[key]

    def __iter__(self) -> Iterator[str]:
        for key in self.labels:
            self.looks += 1
            yield key

    def __len__(self) -> int:
        return len(self.labels)


@pytest.mark.parametrize(("operator", "selected"), [("In", False), ("NotIn", True)])
def test_a_label_is_not_compared_with_each_of_the_values(operator: str, selected: bool) -> None:
    selector = LabelSelector.model_validate(expression(operator, "zone", *map(str, range(10_000))))
    Value.comparisons = 0
    assert selects(selector, {"zone": Value("a")}) is selected
    assert Value.comparisons < 10


@pytest.mark.parametrize(
    ("operator", "key", "values"),
    [
        ("In", "zone", ["a"]),
        ("NotIn", "zone", ["b"]),
        ("NotIn", "{number}", ["b"]),
        ("Exists", "zone", []),
        ("DoesNotExist", "{number}", []),
    ],
)
def test_the_cost_of_a_node_does_not_grow_with_the_conditions(operator: str, key: str, values: list[str]) -> None:
    wanted = both(*(expression(operator, key.format(number=number), *values) for number in range(1000)))
    labels = Labels(LABELS)
    assert selects(LabelSelector.model_validate(wanted), labels)
    assert labels.looks < 20


def test_no_selector_selects_every_node() -> None:
    assert selects(None, {})


@pytest.mark.parametrize(
    "selector", [expression("In", "zone"), expression("Exists", "zone", "a"), expression("Like", "z")]
)
def test_a_selector_that_cannot_be_evaluated_is_invalid(selector: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        LabelSelector.model_validate(selector)
