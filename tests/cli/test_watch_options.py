"""`muniment intents watch --from BLOCK`: the chain of the block must be clear."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from muniment.cli.main import main

SETTLER = "0x" + "5e" * 20


@pytest.mark.parametrize(
    ("chain_ids", "options", "told"),
    [
        ([10, 8453], ["--from", "5"], "--from needs --chain, because several chains are followed: 10, 8453"),
        ([10, 8453], ["--from", "5", "--chain", "1"], "chain 1 is not followed; followed chains: 10, 8453"),
        ([10], ["--chain", "10"], "--chain needs --from: it names the chain of that block"),
        ([10], ["--from", "-1"], "-1 is not in the range"),
    ],
)
def test_a_block_of_no_chain_is_refused_and_nothing_is_followed(
    tmp_path: Path, chain_ids: list[int], options: list[str], told: str
) -> None:
    file, data = tmp_path / "chains.toml", ["--data-dir", str(tmp_path / "data")]
    file.write_text(
        "".join(
            f'[[chains]]\nid = {each}\nrpc_urls = ["http://127.0.0.1:9"]\nsettler = "{SETTLER}"\n' for each in chain_ids
        )
    )
    assert CliRunner().invoke(main, ["migrate", *data]).exit_code == 0
    result = CliRunner().invoke(main, ["intents", "watch", "--once", *options, "--chains", str(file), *data])
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize("place", ["9466", "localhost:9466", "127.0.0.1:70000", "Off"])
def test_a_place_for_health_that_is_none_is_refused(tmp_path: Path, place: str) -> None:
    result = CliRunner().invoke(main, ["intents", "watch", "--health", place, "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 2
    assert f"'{place}' is no address with a port, like 127.0.0.1:9466, and not 'off'" in result.stderr
    assert not (tmp_path / "data").exists()
