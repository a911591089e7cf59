"""What all models do alike with what they are given."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from config.models import L3Vni, LabelSelector, Model, Underlay
from config.models.base import fields_by_key


def test_null_is_absent_at_every_depth() -> None:
    spec = {"vrf": "red", "vni": 1, "hostSession": None, "nodeSelector": {"matchLabels": {"a": None, "b": "c"}}}
    model = L3Vni.model_validate(spec)
    assert model.host_session is None
    assert model.node_selector == LabelSelector.model_validate({"matchLabels": {"b": "c"}})


@pytest.mark.parametrize("validate", [L3Vni.model_validate, L3Vni.from_api])
def test_files_and_api_objects_mean_the_same(validate: Any) -> None:
    spec = {"vrf": "red", "vni": 100, "exportRTs": ["1:1"], "nodeSelector": {"matchExpressions": []}}
    model = validate(spec)
    assert (model.vrf, model.vni, model.export_rts, model.vxlan_port) == ("red", 100, ("1:1",), 4789)


def test_a_number_is_text_in_a_file_and_not_in_the_api() -> None:
    """YAML takes the label 1 for a number; JSON from the API server has text where text is meant."""
    spec: dict[str, Any] = {"vrf": "red", "vni": 100, "nodeSelector": {"matchLabels": {"rack": 1}}}
    model = L3Vni.model_validate(spec)
    assert model.node_selector is not None
    assert model.node_selector.match_labels == {"rack": "1"}
    with pytest.raises(ValidationError):
        L3Vni.from_api(spec)


@pytest.mark.parametrize("data", [None, [], "text", 1, {"asn": 1, "neighbors": {"a": 1}, "interfaces": "x"}])
def test_what_is_no_object_is_refused(data: Any) -> None:
    with pytest.raises(ValidationError):
        Underlay.from_api(data)


def test_a_refused_password_is_not_repeated() -> None:
    spec = {"asn": 1, "interfaces": [], "neighbors": [{"asn": 1, "address": "192.0.2.1", "password": "hunter 2"}]}
    with pytest.raises(ValidationError) as caught:
        Underlay.from_api(spec)
    assert "hunter" not in str(caught.value)


class Inner(Model):
    """A part of another model."""

    number: int


class Outer(Model):
    """Its validator is made when it is first used, which is in the test below."""

    inner: Inner


def test_annotations_mean_what_they_do_in_their_module() -> None:
    Inner = str  # noqa: N806 - as the model
    model = Outer.model_validate({"inner": {"number": 1}})
    assert model.inner.number == 1
    assert Inner is str


class Unused(Model):
    """No validator of it is ever made, so its fields have no aliases but those that are written."""

    two_words: int
    own_alias: int = Field(alias="ownALIAS")


def test_keys_are_known_without_a_validator() -> None:
    assert list(fields_by_key(Unused)) == ["twoWords", "ownALIAS"]
    assert not Unused.__pydantic_complete__


class Slow:
    """Marks a field, and waits while a validator is made: for another thread that makes it as well."""

    made = 0
    again = threading.Event()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        Slow.made += 1
        if Slow.made > 1:
            Slow.again.set()
        Slow.again.wait(0.2)
        return handler(source)


class Marked(Model):
    """Two threads use it at the same time, as files and objects of the API are read."""

    number: Annotated[int, Slow()]


def test_one_thread_makes_a_validator() -> None:
    with ThreadPoolExecutor(2) as pool:
        models = list(pool.map(Marked.model_validate, [{"number": 1}, {"number": 2}]))
    assert [model.number for model in models] == [1, 2]
    assert Slow.made == 1


@pytest.mark.parametrize("use", ["RouterFile.model_json_schema()", "L3VniEntry.model_validate({'vrf': 'a', 'vni': 1})"])
def test_whatever_comes_first_makes_what_it_needs(use: str) -> None:
    """In a process of its own, since here the other tests have been first."""
    code = f"from config.sources.naming import L3VniEntry, RouterFile; print(bool({use}))"
    command = [sys.executable, "-c", code]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
