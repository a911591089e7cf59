"""``openperouter validate --output``: the same problems for programs, and nothing else on standard output."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from config.problems import Origin, Problem
from supervisor.cli import main

OUTPUTS = ("text", "json", "yaml", "github", "sarif")
#: A key that is misspelt, an error, below a warning.
MISSPELT = "l3vnis:\n  - vni: 100\n    VRF: red\n  - vni: 101\n    vfr: blue\n"


def validate(settings: Path, output: str, *files: object) -> int:
    return main(["--settings", str(settings), "validate", "--output", output, *map(str, files)])


@pytest.fixture
def strange(settings: Path) -> Path:
    """A file with problems, in a place whose name has what each format escapes."""
    directory = settings.parent / "a b,c:100%é"
    directory.mkdir()
    file = directory / "openpe_x.yaml"
    file.write_text(MISSPELT)
    return file


def test_json_is_an_object_for_each_problem(settings: Path, strange: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(settings, "json", strange) == 78
    problems = json.loads(capsys.readouterr().out)
    found = [(one["severity"], one["path"], one["line"], one["column"], one.get("field")) for one in problems]
    assert ("warning", str(strange), 3, 5, "l3vnis[0].VRF") in found
    assert ("error", str(strange), 5, 5, "l3vnis[1].vfr") in found
    misspelt = next(one for one in problems if one.get("field") == "l3vnis[1].vfr")
    assert (misspelt["kind"], misspelt["name"]) == ("L3VNI", "vni-101")
    assert misspelt["message"].startswith("unknown key; known keys: ")


def test_github_gets_an_annotation_for_each_problem(
    settings: Path, strange: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate(settings, "github", strange) == 78
    lines = capsys.readouterr().out.splitlines()
    place = f"file={settings.parent}/a b%2Cc%3A100%25é/openpe_x.yaml"
    assert [line.partition("::L3VNI")[0] for line in lines if "VRF" in line] == [f"::warning {place},line=3,col=5"]
    assert any(line.startswith(f"::error {place},line=5,col=5::") and "l3vnis[1].vfr: " in line for line in lines)


def test_what_would_end_an_annotation_is_escaped(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem("100% of\r\nit: a, b", Origin("a.yaml"))
    monkeypatch.setattr("supervisor.operations.node_configuration.problems_of_files", lambda _read: (problem,))
    assert validate(settings, "github") == 78
    assert capsys.readouterr().out == "::error file=a.yaml::100%25 of%0D%0Ait: a, b\n"


def sarif(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the log and the results of its only run."""
    log = json.loads(capsys.readouterr().out)
    assert (log["version"], log["$schema"]) == ("2.1.0", "https://json.schemastore.org/sarif-2.1.0.json")
    [run] = log["runs"]
    assert run["tool"]["driver"]["name"] == "openperouter"
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == sorted({result["ruleId"] for result in run["results"]})
    return log, run["results"]


def test_sarif_has_a_result_for_each_problem(settings: Path, strange: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(settings, "sarif", strange) == 78
    _, results = sarif(capsys)
    found = {}
    for result in results:
        [location] = result["locations"]
        place = location["physicalLocation"]
        uri, region = place["artifactLocation"]["uri"], place["region"]
        # A reference as of RFC 3986; a colon in a first segment would be a scheme.
        assert uri.isascii()
        assert " " not in uri
        assert unquote(uri) == str(strange)
        found[region["startLine"], region["startColumn"]] = result["level"], result["message"]["text"]
    assert found[3, 5][0] == "warning"
    assert found[5, 5][0] == "error"
    assert "l3vnis[1].vfr: " in found[5, 5][1]


def test_sarif_has_no_region_where_the_line_is_not_known(
    settings: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = (Problem("is gone", Origin("a.yaml")), Problem("is odd", Origin("\udcff.yaml", 3)))
    monkeypatch.setattr("supervisor.operations.node_configuration.problems_of_files", lambda _read: problems)
    assert validate(settings, "sarif") == 78
    _, results = sarif(capsys)
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert places == [
        {"artifactLocation": {"uri": "a.yaml"}},
        {"artifactLocation": {"uri": "%FF.yaml"}, "region": {"startLine": 3, "startColumn": 1}},
    ]


@pytest.mark.parametrize(("output", "empty"), [("json", "[]\n"), ("github", "\n")])
def test_a_valid_configuration_has_no_results(
    settings: Path, capsys: pytest.CaptureFixture[str], output: str, empty: str
) -> None:
    assert validate(settings, output) == 0
    assert capsys.readouterr().out == empty
    assert validate(settings, "sarif") == 0
    assert sarif(capsys)[1] == []


@pytest.mark.parametrize("output", OUTPUTS)
def test_warnings_alone_do_not_fail(settings: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    (settings.parent / "configs" / "openpe_l3vni.yaml").write_text("l3vnis:\n  - vni: 100\n    VRF: red\n")
    assert validate(settings, output) == 0
    assert "VRF" in capsys.readouterr().out


@pytest.mark.parametrize("output", OUTPUTS)
def test_standard_input_and_a_directory_are_checked_too(
    settings: Path, strange: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    assert validate(settings, output, strange.parent) == 78
    assert "openpe_x.yaml" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(MISSPELT.encode())))
    assert validate(settings, output, "-") == 78
    assert "vfr" in capsys.readouterr().out


def test_no_secret_is_in_any_output(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (settings.parent / "configs" / "openpe_underlay.yaml").write_text(
        "underlays:\n  - asn: 0\n    neighbors:\n      - {asn: 1, address: 192.0.2.1, password: [hunter2hunter2]}\n"
    )
    for output in OUTPUTS:
        assert validate(settings, output) == 78
        shown = capsys.readouterr()
        assert "hunter2" not in shown.out + shown.err
        assert "password" in shown.out
