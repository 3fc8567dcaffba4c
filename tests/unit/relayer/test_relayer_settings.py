"""The settings of a relayer: whom it serves, and which mistakes it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from muniment.protocol.evm.address import Address
from muniment.protocol.triggers.types import Trigger
from muniment.relayer.settings import (
    SAMPLES,
    RelayerSettingError,
    RelayerSettings,
    _Price,
    _Relayer,
    load_relayer_settings,
)

SIGNER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
CID = "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"
OTHER_CID = "QmbWqxBEKC3P8tqsKc98xmWNzrzDtRLMiMPL8wBuTGsMnR"
LISTS = f'signers = ["{SIGNER.lower()}"]\nfunctions = ["{CID}"]\nchains = [8453]\n'
HEAD = '[relayer]\nregistry = "https://registry.example"\n'


def load(directory: Path, text: str, **environ: str) -> RelayerSettings:
    path = directory / "relayer.toml"
    path.write_text(text)
    return load_relayer_settings(path, environ)


@dataclass
class Shown:
    """What decides whether a trigger is served."""

    signer: str = SIGNER
    function_cid: str = CID
    config: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.config = self.config or {"type": 0}


def refused(settings: RelayerSettings, **members: Any) -> str:
    return settings.served.refused(cast("Trigger", Shown(**members)))


def test_the_lists_say_whom_a_relayer_serves(tmp_path: Path) -> None:
    settings = load(tmp_path, HEAD + LISTS)
    assert settings.served.signers == {Address.parse(SIGNER)}
    assert refused(settings) == ""
    assert "signers" in refused(settings, signer="0x" + "ab" * 20)
    assert "functions" in refused(settings, function_cid=OTHER_CID)
    assert refused(settings, config={"type": 1, "chainId": "8453"}) == ""
    assert "chains" in refused(settings, config={"type": 1, "chainId": 1})
    assert settings.served.has_chain(8453)
    assert not settings.served.has_chain(1)


@pytest.mark.parametrize("missing", ["signers", "functions", "chains"])
def test_each_list_must_be_set_or_be_open(tmp_path: Path, missing: str) -> None:
    lines = [line for line in LISTS.splitlines(keepends=True) if not line.startswith(missing)]
    with pytest.raises(RelayerSettingError, match=rf'relayer.{missing} is not set.*{missing} = \["\*"\]'):
        load(tmp_path, HEAD + "".join(lines))
    settings = load(tmp_path, HEAD + "".join(lines) + f'{missing} = ["*"]\n')
    assert getattr(settings.served, missing) is None
    assert load_relayer_settings(tmp_path / "relayer.toml", {}).served == settings.served


def test_any_opens_the_lists_that_are_not_set(tmp_path: Path) -> None:
    (tmp_path / "relayer.toml").write_text(HEAD + "chains = [1]\n")
    served = load_relayer_settings(tmp_path / "relayer.toml", {}, opens_all=True).served
    assert (served.signers, served.functions, served.chains) == (None, None, {1})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "relayer.toml"),
        ("[relayer]\n", 'relayer.registry is missing: write registry = "https://'),
        ('[relayer]\nregistry = "ftp://a"\n', "relayer.registry: the URL of a service has the form"),
        ("x = 1\n" + HEAD, "x is unknown; known are relayer, price, fees"),
        (HEAD + LISTS + "sginers = []\n", "relayer.sginers is unknown: write signers = ["),
        (HEAD + LISTS + "intents_per_day_max = 0\n", "relayer.intents_per_day_max is wrong: write a whole number"),
        (HEAD + LISTS + 'state = ""\n', "relayer.state is wrong: write state = "),
        (HEAD + LISTS + "health_port = 65536\n", "relayer.health_port is wrong: write health_port = 9108"),
        (HEAD + LISTS.replace(SIGNER.lower(), "0x12"), "relayer.signers: "),
        (HEAD + LISTS.replace(CID, "Qm"), "relayer.functions: "),
        (HEAD + LISTS.replace("8453", '"base"'), "relayer.chains: 'base' is not a chain id"),
        (HEAD + LISTS.replace("8453", '8453, "*"'), "other entries"),
        (HEAD + LISTS + '[price]\nsource = "oracle"\n', 'price.source is wrong: write source = "chainlink"'),
        (HEAD + LISTS + '[price]\nsource = "api"\n', "price.url"),
        (HEAD + LISTS + '[price]\nurl = "https://prices.example"\n', "price.url"),
        (HEAD + LISTS + '[fees]\n"*" = "-1"\n', "fees is wrong: write a table [fees]"),
        (HEAD + LISTS + '[fees]\nQm = "1"\n', "fees.Qm: neither a CIDv0"),
        (HEAD + LISTS + 'operator_key_file = "missing"\n', "operator_key_file cannot be read"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(RelayerSettingError) as refusal:
        load(tmp_path, text)
    assert why in str(refusal.value)


def test_each_setting_has_a_sample() -> None:
    tables = {"relayer": _Relayer, "price": _Price}
    names = {f"{table}.{name}" for table, kind in tables.items() for name in kind.__struct_fields__}
    assert SAMPLES.keys() == names | {"relayer", "price", "fees"}


def test_the_key_is_in_a_file_beside_or_in_the_environment_and_is_never_shown(tmp_path: Path) -> None:
    assert load(tmp_path, HEAD + LISTS, MUNIMENT_OPERATOR_KEY="secret").operator_key == "secret"
    assert load(tmp_path, HEAD + LISTS).operator_key is None
    (tmp_path / "key").write_text("of the file\n")
    settings = load(tmp_path, HEAD + LISTS + 'operator_key_file = "key"\n', MUNIMENT_OPERATOR_KEY="secret")
    assert settings.operator_key == "of the file"
    assert "of the file" not in repr(settings)
    (tmp_path / "key").write_text("\n")
    with pytest.raises(RelayerSettingError, match="is empty"):
        load(tmp_path, HEAD + LISTS + 'operator_key_file = "key"\n')


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604, 0o620])
def test_a_key_file_that_others_can_read_or_change_is_named(tmp_path: Path, mode: int) -> None:
    text, path = HEAD + LISTS + 'operator_key_file = "key"\n', tmp_path / "key"
    path.write_text("secret")
    path.chmod(mode)
    assert load(tmp_path, text).exposed_key_file == (path if mode & 0o077 else None)
    # systemd gives the group of its copies a mode that an access list overrules.
    assert load(tmp_path, text, CREDENTIALS_DIRECTORY=str(tmp_path)).exposed_key_file is None
    assert load(tmp_path, text, CREDENTIALS_DIRECTORY=str(tmp_path / "other")).exposed_key_file == (
        path if mode & 0o077 else None
    )


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = load(tmp_path, HEAD + LISTS + 'chains_file = "chains.toml"\n')
    assert (settings.state, settings.chains_file) == (tmp_path / "relayer.db", tmp_path / "chains.toml")


def test_the_fee_is_that_of_the_function_or_of_any(tmp_path: Path) -> None:
    settings = load(tmp_path, HEAD + LISTS + f'[fees]\n"*" = "5"\n{CID} = "7"\n')
    fees = [settings.fee_of(cast("Trigger", Shown(function_cid=cid))) for cid in (CID, OTHER_CID)]
    assert fees == [7, 5]
    assert load(tmp_path, HEAD + LISTS).fee_of(cast("Trigger", Shown())) == 0
