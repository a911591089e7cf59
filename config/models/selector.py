"""The API's label selector, as every resource carries it to choose nodes, and its evaluation on a node's labels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from .base import Model, without_nulls
from .rules import MAP_TYPE, cel


class LabelRequirement(Model):
    """A condition on a label."""

    key: str = Field(min_length=1, max_length=317, description="Label key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="How the label is compared.")
    values: tuple[str, ...] = Field(default=(), description="Values for In and NotIn; empty for the other operators.")

    @model_validator(mode="after")
    @cel(
        "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
        "In and NotIn need values; Exists and DoesNotExist must have none",
    )
    def _values_fit_the_operator(self) -> Self:
        if self.operator in ("In", "NotIn") and not self.values:
            raise ValueError(f"operator {self.operator} needs values")
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            raise ValueError(f"operator {self.operator} takes no values")
        return self


class Conditions(NamedTuple):
    """All of a selector's expressions: labels that must and must not be there, values that they must and must not have.

    A node's labels are looked up in these: a tenant's selector may have 100 000 values, and a cluster 5 000 nodes.
    """

    present: frozenset[str]
    absent: frozenset[str]
    among: Mapping[str, frozenset[str]]
    outside: Mapping[str, set[str]]


class LabelSelector(Model):
    """All conditions must hold; an empty selector selects every node."""

    model_config = ConfigDict(json_schema_extra={MAP_TYPE: "atomic"})

    match_labels: Annotated[dict[str, str], BeforeValidator(without_nulls)] = Field(
        default_factory=dict, description="Labels that must have exactly these values."
    )
    match_expressions: tuple[LabelRequirement, ...] = Field(default=(), description="Further conditions on labels.")

    @cached_property
    def conditions(self) -> Conditions:
        """The expressions together; made when it is first asked for."""
        present: set[str] = set()
        absent: set[str] = set()
        among: dict[str, frozenset[str]] = {}
        outside: dict[str, set[str]] = {}
        for one in self.match_expressions:
            match one.operator:
                case "In":
                    present.add(one.key)
                    among[one.key] = among.get(one.key, frozenset(one.values)).intersection(one.values)
                case "NotIn":
                    outside.setdefault(one.key, set()).update(one.values)
                case "Exists":
                    present.add(one.key)
                case "DoesNotExist":
                    absent.add(one.key)
        return Conditions(frozenset(present), frozenset(absent), among, outside)


class Selected(Model):
    """Base of the resources: each chooses its nodes."""

    node_selector: LabelSelector | None = Field(default=None, description="Nodes it applies to; absent: all.")


def selector_in(spec: Any) -> LabelSelector | None:
    """Return the node selector in a spec that is not validated, an empty one without any, None for an unreadable one.

    An unreadable one selects every node: which nodes it is for is unknown, and each node reports it.
    """
    given = spec.get("nodeSelector") if isinstance(spec, dict) else None
    try:
        return LabelSelector() if given is None else LabelSelector.model_validate(given)
    except ValidationError:
        return None


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is selected. No selector, or an empty one, selects every node."""
    if selector is None:
        return True
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    present, absent, among, outside = selector.conditions
    if not (labels.keys() >= present and absent.isdisjoint(labels)):
        return False
    # Kubernetes' semantics: NotIn holds for a label that is not there.
    return all(labels[key] in values for key, values in among.items()) and not any(
        value in outside.get(key, ()) for key, value in labels.items()
    )
