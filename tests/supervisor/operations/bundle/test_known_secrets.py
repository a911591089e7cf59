"""Secrets are found wherever a node has them: good files and broken ones, remembered texts, password files, FRR."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from actors.static_config import trial as trials
from config.api import ApiObject, ApiSnapshot
from config.desired import Secret
from config.problems import Kind
from config.settings import Settings
from config.store import api_snapshot_file
from config.store.api_snapshot_file import SavedSnapshot
from config.store.last_good import LastGood, to_json
from supervisor.operations.bundle import known_secrets
from supervisor.operations.bundle.known_secrets import secrets_in_document, secrets_in_frr, secrets_in_yaml

API = ApiSnapshot(
    objects=(
        ApiObject(Kind.UNDERLAY, "ns", "u", spec={"neighbors": [{"asn": 1, "password": "in-underlay-object"}]}),
        ApiObject(
            Kind.RAW_FRR_CONFIG, "ns", "r", spec={"rawConfig": "! x\nneighbor 10.0.0.9 password in-snippet-object\n!"}
        ),
        ApiObject(Kind.L3VNI, "ns", "odd", spec=None),
    ),
    secrets=MappingProxyType(
        {("ns", "fabric", "password"): Secret('in-"secret"-object'), ("ns", "gone", "password"): None}
    ),
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings whose directories are there and empty."""
    for name in ("configs/secrets", "state", "run/frr", "frr/perouter"):
        (tmp_path / name).mkdir(parents=True)
    return Settings(
        node_config_file=tmp_path / "node-config.yaml",
        configs_dir=tmp_path / "configs",
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        frr_etc_dir=tmp_path / "frr",
    )


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password: plain", "plain"),
        ("password: plain # and why", "plain"),
        ("password: 'it''s'", "it's"),
        ('password: "a\\"b"', 'a"b'),
        ("{asn: 1, password: flowing, port: 179}", "flowing"),
        ("# password: commented", "commented"),
        ('{"password": "json"}', "json"),
        ("bgpPassword: camel", "camel"),
        ("key-string: chain", "chain"),
    ],
)
def test_in_yaml(text: str, secret: str) -> None:
    assert secret in set(secrets_in_yaml(text))


def test_in_yaml_blocks() -> None:
    assert "folded away" in {one.strip() for one in secrets_in_document("a:\n  password: >\n    folded\n    away\n")}
    assert "second" in set(secrets_in_document("password: |\n  first\n  second\n"))


def test_a_reference_is_not_a_secret() -> None:
    assert not set(secrets_in_yaml("passwordSecret: fabric\npasswordSecretRef: x"))


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        (" neighbor 10.0.0.9 password topsecret", "topsecret"),
        (" neighbor 10.0.0.9 password 8 0a1b2c", "0a1b2c"),
        ("      ip ospf message-digest-key 1 md5 keyword", "keyword"),
        ("enable password hard", "hard"),
    ],
)
def test_in_frr_text(line: str, secret: str) -> None:
    assert secret in set(secrets_in_frr(line))


def test_a_long_line_without_a_secret_gives_none() -> None:
    assert set(secrets_in_frr('{"vrfs": [' + '"red", ' * 20_000 + '"red"]}')) == set()


def test_prose_in_comments_gives_no_words_that_would_be_hidden_everywhere() -> None:
    assert "of" not in set(secrets_in_frr("# the password of the fabric"))


def trial(secret: str) -> str:
    """Return a stored trial of a file with a password."""
    texts = {"openpe_x.yaml": f"password: '{secret}'\n"}
    return trials.to_json(trials.Trial(texts, ("openpe_x.yaml",), (), {}, "boot", 0.0, 0.0))


def test_every_place_is_looked_at(settings: Settings) -> None:
    configs = settings.configs_dir
    (configs / "openpe_good.yaml").write_text("underlays:\n  - neighbors:\n      - password: in-good-file\n")
    (configs / "openpe_broken.yaml").write_text("underlays: [\n password: in-broken-file\n")
    (configs / "openpe_raw.yaml").write_text("rawConfig: |\n  neighbor 10.0.0.9 password in-snippet\n")
    (configs / "openpe_good.yaml~").write_text("password: in-backup\n")
    (configs / "secrets" / "fabric").write_text("in-password-file\n")
    texts = {str(configs / "openpe_old.yaml"): "password: in-memory\n"}
    passwords = {str(configs / "secrets" / "gone"): Secret('in-"remembered"-file')}
    (settings.state_dir / "last-good.json").write_text(to_json(LastGood(texts, passwords)))
    (settings.state_dir / "trial.json").write_text(trial("in-trial"))
    (settings.state_dir / "trial-accepted.json").write_text(trial('in-"accepted"-trial'))
    (settings.state_dir / "before-trial" / "1234").mkdir(parents=True)
    (settings.state_dir / "before-trial" / "1234" / "openpe_x.yaml").write_text("password: before-trial\n")
    (settings.frr_etc_dir / "perouter" / "frr.conf").write_text(
        "router bgp 1\n neighbor 10.0.0.9 password in-frr-conf\n"
    )
    (settings.frr_etc_dir / "perouter" / "frr.conf.sav").write_text("neighbor 10.0.0.9 password in-frr-conf-sav\n")
    (settings.run_dir / "frr" / "commands.conf").write_text(" neighbor 10.0.0.9 password in-working-file\n")
    snapshot = api_snapshot_file.to_json(SavedSnapshot("node", API))
    (settings.state_dir / "api-snapshot.json").write_text(snapshot)
    spare = snapshot.replace("in-underlay-object", "in-spare-object")
    (settings.run_dir / "api-snapshot.json").write_text(spare)
    found = known_secrets(settings, " neighbor 10.0.0.9 password in-running-frr\n")
    assert found >= {
        "in-good-file",
        "in-broken-file",
        "in-snippet",
        "in-backup",
        "in-password-file",
        "in-memory",
        'in-"remembered"-file',
        "in-underlay-object",
        "in-spare-object",
        "in-snippet-object",
        'in-"secret"-object',
        "in-trial",
        'in-"accepted"-trial',
        "before-trial",
        "in-frr-conf",
        "in-frr-conf-sav",
        "in-working-file",
        "in-running-frr",
    }


def test_a_node_without_anything_has_no_secret(tmp_path: Path) -> None:
    nowhere = Settings(
        node_config_file=tmp_path / "n",
        configs_dir=tmp_path / "c",
        state_dir=tmp_path / "s",
        frr_etc_dir=tmp_path / "f",
    )
    assert known_secrets(nowhere) == frozenset()
