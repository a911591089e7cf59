"""Manifests, chart and kustomizations: complete, the same everywhere, and printed without a server.

tests/cluster/test_charts.py renders and applies them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.crd.definitions import DEFINITIONS
from supervisor.cli.program import main
from supervisor.operations import exit_codes
from supervisor.operations.cluster import manifests
from supervisor.version import VERSION

ROOT = Path(__file__).resolve().parents[4]
PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "chart"


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def kustomization(directory: Path) -> Path:
    [found] = [path for name in ("kustomization.yaml", "Kustomization") if (path := directory / name).exists()]
    return found


def resources(directory: Path) -> Iterator[Path]:
    """Yield the files of a kustomization and of those that it has as bases."""
    content = yaml.safe_load(kustomization(directory).read_text())
    for name in content["resources"]:
        path = (directory / name).resolve()
        yield from resources(path) if path.is_dir() else [path]
    for generator in content.get("configMapGenerator", ()):
        yield from (directory / each.partition("=")[2] for each in generator["files"])


def test_the_definitions_are_those_of_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crds"]) == exit_codes.OK
    printed = capsys.readouterr().out
    assert printed == "".join((PACKAGING / "crds" / one.file_name).read_text() for one in DEFINITIONS)


def test_what_is_printed_is_what_the_kustomizations_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests"]) == exit_codes.OK
    printed = objects(capsys.readouterr().out)
    files = list(resources(PACKAGING / "kustomize/overlays/hostbridge"))
    wanted = [one for path in files for one in objects(path.read_text())]
    assert sorted(map(yaml.safe_dump, printed)) == sorted(map(yaml.safe_dump, wanted))
    # The namespace is there before what lives in it.
    kinds = [one["kind"] for one in printed if "namespace" in one["metadata"] or one["kind"] == "Namespace"]
    assert kinds[0] == "Namespace"


def test_the_full_overlay_has_every_file_that_there_is() -> None:
    folders = ("crds", "kubernetes", "monitoring")
    found = {path for name in folders for path in (PACKAGING / name).rglob("*") if path.suffix in (".yaml", ".json")}
    # Prometheus' own form of the rules; kustomizations themselves.
    found -= {PACKAGING / "monitoring/openperouter-rules.yaml", *PACKAGING.rglob("kustomization.yaml")}
    # Instead of the package, on nodes without it.
    found -= set((PACKAGING / "kubernetes/router").iterdir())
    assert set(resources(PACKAGING / "kustomize/overlays/full")) == found


def test_parts_image_and_server_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    image = "registry.example:5000/a/openperouter:1.2@sha256:" + "a" * 64
    assert main(["manifests", "hostbridge", "--image", image, "--api-server", "https://[2001:db8::1]:6443"]) == 0
    pod = objects(capsys.readouterr().out)[-1]["spec"]["template"]["spec"]["containers"][0]
    assert pod["image"] == image
    assert "--api-server=https://[2001:db8::1]:6443" in pod["args"]
    assert main(["manifests", "monitoring"]) == 0
    assert [one["kind"] for one in objects(capsys.readouterr().out)] == ["PrometheusRule", "PodMonitor", "ConfigMap"]
    assert main(["manifests", "metrics", "--image", image]) == 0
    [metrics] = objects(capsys.readouterr().out)
    assert metrics["spec"]["template"]["spec"]["containers"][0]["image"] == image
    assert main(["manifests", "router", "--image", image]) == 0
    [router] = objects(capsys.readouterr().out)
    pod = router["spec"]["template"]["spec"]
    assert [one["image"] for one in (*pod["initContainers"], *pod["containers"])] == [image] * 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--image", "a b"], "--image: a b: must be NAME[:TAG]"),
        (["--image", "name:tag\n  evil: 1"], "must be NAME[:TAG]"),
        (["--api-server", "http://192.0.2.1"], "must be https://HOST[:PORT]"),
        (["--api-server", "https://a\n- --output=/etc/x"], "--api-server: must be"),
        (["--api-server", "node-local:x"], "the port must be a number"),
    ],
)
def test_what_has_no_form_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", *arguments]) == exit_codes.USAGE
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["manifests", "hostbrige"])
    assert exit_.value.code == exit_codes.USAGE
    assert "did you mean hostbridge?" in capsys.readouterr().err


def test_chart_and_kustomizations_are_written_without_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new"
    assert main(["manifests", "--write", str(target)]) == exit_codes.OK
    assert str(target / "chart") in capsys.readouterr().out
    written = [path for path in target.rglob("*") if not path.is_dir()]
    assert [path for path in written if path.is_symlink() or path.suffix == ".py"] == []
    assert {path.name for path in (target / "chart/files/crds").iterdir()} == {one.file_name for one in DEFINITIONS}
    assert len(list(resources(target / "kustomize/overlays/full"))) > len(DEFINITIONS)
    assert main(["manifests", "--write", str(target)]) == exit_codes.USAGE
    assert "not an empty directory" in capsys.readouterr().err


def test_the_charts_files_are_links_to_the_manifests() -> None:
    files = [path for path in (CHART / "files").rglob("*") if not path.is_dir()]
    assert all(path.is_symlink() and PACKAGING in path.resolve().parents for path in files)
    linked = {path.resolve() for path in files if path.parent.name == "crds"}
    assert linked == {PACKAGING / "crds" / one.file_name for one in DEFINITIONS}
    used = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert [path.name for path in files if path.parent.name == "files" and path.name not in used] == []


def test_the_charts_version_is_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_values_are_printed_with_what_they_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "--helm-values"]) == exit_codes.OK
    printed = capsys.readouterr().out
    assert printed == (CHART / "values.yaml").read_text()
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert set(yaml.safe_load(printed)) == set(schema["properties"]) - {"global"}


def test_manifests_that_are_not_there_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(manifests, "__file__", str(tmp_path / "a/b/c/d.py"))
    assert main(["manifests", "nodes"]) == exit_codes.UNAVAILABLE
    assert "not installed" in capsys.readouterr().err
