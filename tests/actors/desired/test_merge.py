"""Files and API objects become one list; a file's mirror is none of it."""

from __future__ import annotations

from dataclasses import replace

from actors.desired.reconcile import merge
from config.api import SOURCE_LABEL
from config.problems import Kind, Origin, Problem, ResourceId

from .examples import GRANTS, OWN, api_l3vni, cluster, files, l3vni, underlay


def test_without_an_api_there_are_the_files() -> None:
    static = files(underlay())
    assert merge(static, None, GRANTS) == (static.resources, ())


def test_both_are_equals_and_each_keeps_its_origin() -> None:
    resources, _ = merge(files(l3vni("a", 1)), cluster(api_l3vni("b", 2)), GRANTS)
    assert [str(one.origin) for one in resources] == ["/etc/a.yaml:1", "tenant/b@1"]


def test_an_object_called_like_a_files_resource_is_its_mirror_whatever_it_says() -> None:
    stripped = api_l3vni("a", 0, OWN, nonsense=True)
    resources, problems = merge(files(l3vni("a", 1)), cluster(stripped, api_l3vni("a", 2)), GRANTS)
    assert {one.id for one in resources} == {
        ResourceId(Kind.L3VNI, OWN, "a"),
        ResourceId(Kind.L3VNI, "tenant", "a"),
    }
    assert resources[0] == l3vni("a", 1)
    assert problems == ()


def test_a_label_hides_nothing() -> None:
    hidden = replace(api_l3vni("b", 2), labels={SOURCE_LABEL: "static"})
    resources, _ = merge(files(), cluster(hidden), GRANTS)
    assert len(resources) == 1


def test_what_this_node_wrote_itself_is_never_merged() -> None:
    api = replace(cluster(), mirrored=(api_l3vni("a", 1, OWN), api_l3vni("gone", 1, OWN)))
    resources, _ = merge(files(l3vni("a", 1)), api, GRANTS)
    assert resources == (l3vni("a", 1),)


def test_problems_of_both_travel_along() -> None:
    wrong = Problem("cannot be read", Origin(path="/etc/broken.yaml"))
    _, problems = merge(replace(files(), problems=(wrong,)), cluster(api_l3vni("b", 0)), GRANTS)
    assert [str(one) for one in problems] == [
        "/etc/broken.yaml: error: cannot be read",
        "tenant/b@1: error: L3VNI tenant/b: vni: must be at least 1",
    ]
