"""Which nodes a resource is for: the API's label selectors, evaluated on one node's labels."""

from __future__ import annotations

from collections.abc import Mapping

from config.models.selector import LabelRequirement, LabelSelector


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is selected. No selector, or an empty one, selects every node."""
    if selector is None:
        return True
    exact = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return exact and all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    """Kubernetes' semantics: NotIn holds for a label that is not there."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
