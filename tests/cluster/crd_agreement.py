"""Two judges of the same spec: the API server with our definitions, and the models. They shall say the same.

with Judge(server) as judge:
    verdict = judge.server(Kind.L3VNI, spec)    what the server makes of it (a strict dry run: nothing is kept)
    verdict = judge.model(Kind.L3VNI, spec)     what the model makes of it
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import httpx
from pydantic import ValidationError

from actors.lib.kube.client import ssl_context
from config.api import API_VERSION, PLURALS
from config.crd.definitions import DEFINITIONS
from config.desired import Secret
from config.models import Model
from config.models.types import check_route_target
from config.problems import Kind

from .harness import ClusterServer

MODELS: Final[dict[Kind, type[Model]]] = {Kind(one.kind): one.spec for one in DEFINITIONS if one.spec is not None}
_STRICT_DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_ROUTE_TARGETS: Final = {"exportRTs", "importRTs"}
#: The server says no in two ways: 400 for a key that it does not know, 422 for a value that breaks a rule.
_REFUSALS: Final = {400: "strict decoding error", 422: "is invalid"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """``spec`` is the accepted spec with its defaults, None when it is refused; ``why`` says why."""

    spec: Any
    why: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it is accepted."""
        return self.spec is not None


class Judge:
    """Asks both. A context manager, since it keeps a connection."""

    def __init__(self, server: ClusterServer) -> None:
        token = server.admin.token
        assert token is not None
        self._http = httpx.Client(
            base_url=server.url,
            verify=ssl_context(server.admin),
            headers={"Authorization": f"Bearer {token.reveal()}", "Content-Type": "application/json"},
            trust_env=False,
            timeout=30,
        )

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def server(self, kind: Kind, spec: Any) -> Verdict:
        """Return the API server's verdict on creating an object with this spec."""
        body = {"apiVersion": API_VERSION, "kind": kind.value, "metadata": {"name": "judged"}, "spec": spec}
        path = f"/apis/{API_VERSION}/namespaces/default/{PLURALS[kind]}"
        answer = self._http.post(path, params=_STRICT_DRY_RUN, content=json.dumps(body))
        answered = answer.json()
        if answer.status_code == 201:
            return Verdict(answered["spec"])
        assert _REFUSALS.get(answer.status_code, "\0") in answered["message"], (answer.status_code, answered)
        return Verdict(None, answered["message"])

    def table(self, path: str) -> list[dict[str, Any]]:
        """Return the rows that ``kubectl get -o wide`` shows of a list, each by the names of its columns."""
        answer = self._http.get(path, headers={"Accept": TABLE}).json()
        names = [column["name"] for column in answer["columnDefinitions"]]
        return [dict(zip(names, row["cells"], strict=True)) for row in answer["rows"]]

    def model(self, kind: Kind, spec: Any) -> Verdict:
        """Return the model's verdict."""
        try:
            return Verdict(as_data(MODELS[kind].from_api(spec)))
        except ValidationError as error:
            return Verdict(None, str(error))

    def both(self, kind: Kind, spec: Any) -> bool:
        """Assert that both say the same and fill in the same; return whether they accept it."""
        server, model = self.server(kind, spec), self.model(kind, spec)
        assert server.accepted == model.accepted, f"{spec!r}: server: {server}; model: {model}"
        assert without_leading_zeros(server.spec) == model.spec
        return server.accepted


def without_leading_zeros(spec: Any) -> Any:
    """Return a spec with its route targets as the model writes them: the API server keeps what it was given."""
    if not isinstance(spec, dict):
        return spec
    targets = {name: [check_route_target(text) for text in spec[name]] for name in _ROUTE_TARGETS & spec.keys()}
    distinguisher = {"rd": check_route_target(spec["rd"])} if isinstance(spec.get("rd"), str) else {}
    return spec | targets | distinguisher


def as_data(value: Any) -> Any:
    """Return a model as JSON data: what is set and what has a default, secrets in clear text."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, tuple):
        return [as_data(one) for one in value]
    if not isinstance(value, Model):
        return value
    found = {}
    for name, info in type(value).model_fields.items():
        given = getattr(value, name)
        # An absent list stays absent.
        if given is not None and (given not in ((), {}) or name in value.model_fields_set):
            found[info.alias or name] = as_data(given)
    return found
