"""From the API's objects to resources, by the same models as the files' entries.

An object that breaks a rule becomes an unusable resource with problems that name it. A field that this version does not
know is reported and ignored, and the rest of the object counts: during an upgrade the cluster's definitions are newer
than some of the nodes. Passwords come from the Secrets in the snapshot; no message ever contains one. The snapshot has
only objects that select this node, so node selectors are not evaluated again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from config.api import ApiObject, ApiSnapshot
from config.desired import Secret
from config.models import Model
from config.models.passwords import Place, sessions_of, with_passwords
from config.models.sessions import SecretReference
from config.problems import Kind, Problem, Severity
from config.resources import Resource, Unusable, passthrough_families
from config.syntax.hints import message_of
from config.syntax.model_errors import meant
from config.syntax.yaml_reader import FieldPath, format_path

from .naming import SPECS

_LEFT_OUT: Final = "this version does not support the field and ignores it; the rest is in force"
#: Each round of leaving fields out uncovers at most what they hid; no schema is deeper.
_MAX_ROUNDS: Final = 16
_UNKNOWN: Final = "extra_forbidden"
_SELECTOR: Final = "nodeSelector"
_NO_SNIPPETS: Final = "raw FRR configuration is not accepted from the API on this node (setting rawSnippetsFromAPI)"


def read_objects(
    snapshot: ApiSnapshot, namespace: str, *, raw_snippets: bool = True
) -> tuple[tuple[Resource, ...], tuple[Problem, ...]]:
    """Return a snapshot's objects as resources, unusable ones included, and their problems.

    ``namespace`` is the program's own: raw snippets and Secrets of any other are refused, and
    unless ``raw_snippets`` (the setting ``rawSnippetsFromAPI``) all snippets are. Raises nothing.
    """
    resources, problems = [], []
    for one in snapshot.objects:
        if one.kind is Kind.RAW_FRR_CONFIG and not raw_snippets:
            spec: Model | Unusable = Unusable()
            found = [_problem(one, _NO_SNIPPETS)]
        else:
            spec, found = _read(one, snapshot, namespace)
        resources.append(Resource(one.kind, one.namespace, one.name, one.origin, spec))
        problems += found
    return tuple(resources), tuple(problems)


def _read(one: ApiObject, snapshot: ApiSnapshot, namespace: str) -> tuple[Model | Unusable, list[Problem]]:
    if one.kind is Kind.RAW_FRR_CONFIG and one.namespace != namespace:
        message = f"raw FRR configuration is accepted from namespace {namespace} only: create it there"
        return Unusable(), [_problem(one, message)]
    model, problems = _validated(one)
    if model is None:
        # One whose selector cannot be read may not be for this node; it must not change any session.
        known = one.kind is Kind.L3PASSTHROUGH and not any(_is_about_selector(problem) for problem in problems)
        return Unusable(passthrough_families(one.spec) if known else frozenset()), problems
    return _with_passwords(model, one, snapshot, namespace, problems)


def _validated(one: ApiObject) -> tuple[Model | None, list[Problem]]:
    """Return the model, None when a rule is broken, and the problems; unknown fields are left out."""
    model = SPECS[one.kind]
    spec: Any = dict(one.spec) if isinstance(one.spec, Mapping) else one.spec
    warnings: list[Problem] = []
    for _ in range(_MAX_ROUNDS):
        try:
            return model.from_api(spec).model_copy(update={"node_selector": None}), warnings
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False, include_context=True)
        unknown = [detail["loc"] for detail in details if detail["type"] == _UNKNOWN]
        if not unknown:
            break
        spec = _without(spec, unknown)
        warnings += (_problem(one, _LEFT_OUT, place, Severity.WARNING) for place in unknown)
    return None, [*warnings, *_errors(one, details)]


def _errors(one: ApiObject, details: list[ErrorDetails]) -> Iterator[Problem]:
    for detail in meant(details):
        message = message_of(detail)
        if detail["loc"][:1] == (_SELECTOR,):
            message += "; which nodes it applies to is unknown"
        yield _problem(one, message, detail["loc"])


def _is_about_selector(problem: Problem) -> bool:
    return problem.severity is Severity.ERROR and problem.field.partition(".")[0] == _SELECTOR


def _without(spec: Any, places: Sequence[FieldPath]) -> Any:
    """Return a copy without the fields at these places."""
    rest = copy.deepcopy(spec)
    for *parents, key in places:
        holder = rest
        for step in parents:
            holder = holder[step]
        del holder[key]
    return rest


def _problem(one: ApiObject, message: str, place: FieldPath = (), severity: Severity = Severity.ERROR) -> Problem:
    return Problem(message, one.origin, format_path(place), severity=severity, resource=one.id)


def _with_passwords(
    model: Model, one: ApiObject, snapshot: ApiSnapshot, namespace: str, problems: list[Problem]
) -> tuple[Model | Unusable, list[Problem]]:
    """Replace references to Secrets by the passwords."""
    found: list[Problem] = []
    passwords: dict[Place, Secret] = {}
    for place, session in sessions_of(model):
        if session.password_secret is None:
            continue
        try:
            passwords[place] = _password(one, session.password_secret, snapshot, namespace)
        except ValueError as error:
            found.append(_problem(one, str(error), (*place, "passwordSecret")))
    if found:
        families = passthrough_families(one.spec) if one.kind is Kind.L3PASSTHROUGH else frozenset()
        return Unusable(families), [*problems, *found]
    return with_passwords(model, passwords), problems


def _password(one: ApiObject, reference: SecretReference, snapshot: ApiSnapshot, namespace: str) -> Secret:
    """Return the password in a Secret. Raises ValueError with what to do, never with the password."""
    place = one.namespace
    if place != namespace:
        raise ValueError(
            f"Secrets are read in namespace {namespace} only: create this {one.kind} and its Secret there, "
            "or set password instead"
        )
    name, key = reference.in_secret
    if (place, name, key) not in snapshot.secrets:
        raise ValueError(
            f"Secret {place}/{name} cannot be read: add its name to resourceNames in the Role openperouter-passwords"
        )
    secret = snapshot.secrets[place, name, key]
    if secret is None:
        raise ValueError(
            f"Secret {place}/{name} does not exist or has no usable password: create it with 1 to 128 printable ASCII "
            f"characters without spaces under the key {key}"
        )
    return secret
