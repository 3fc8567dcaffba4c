"""The checks of chains: nodes that are silent or wrong, and a watcher that is behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from breaking import breaks
from muniment.chains.catalogue import Chain
from muniment.operate.check_chains import Report
from muniment.operate.doctor.findings import Examined, Level
from muniment.operate.doctor.nodes import check_chains, judge_chain, judge_watcher
from muniment.protocol.evm.address import Address
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from muniment.service.storage.database import Transaction

CHAIN = Chain(8453, "Base", rpc_urls=("https://one.example/KEY", "https://two.example"))


NOW, BEFORE = bytes([7] * 20), bytes([6] * 20)


@breaks("chain")
def test_one_bad_url_of_two_is_a_warning_and_two_fail() -> None:
    good, bad = Report(CHAIN, 1, block=7), Report(CHAIN, 2, faults=["does not answer: unreachable"])
    assert [judge_chain(CHAIN, found).level for found in ([good], [good, bad], [bad, bad], [])] == [0, 1, 2, 2]
    assert "KEY" not in str(judge_chain(CHAIN, [bad]))
    assert judge_chain(CHAIN, [Report(CHAIN, n, block=7, notes=["no settler"]) for n in (1, 2)]).message == (
        "block 7; no settler"
    )


@breaks("watcher")
def test_a_watcher_that_is_behind_is_a_warning() -> None:
    levels = [judge_watcher({1: block}, {1: 1_000}, {1: 3})[0].level for block in (998, 898, 897)]
    assert levels == [Level.OK, Level.OK, Level.WARN]
    assert judge_watcher({1: 5}, {}, {1: 3}) == []


async def test_a_watcher_waits_for_the_confirmations_of_its_chain_and_leaves_former_settlers(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reports(*_: object, **__: object) -> list[Report]:
        return [Report(CHAIN, 1, block=1_000)]

    monkeypatch.setattr("muniment.operate.doctor.nodes.check_urls", reports)
    file = tmp_path / "chains.toml"
    file.write_text(
        '[[chains]]\nid = 8453\nrpc_urls = ["https://one.example"]\nconfirmations = 400\n'
        f'settlers = ["{Address.from_raw(NOW)}"]\n'
    )

    async def follow(tx: Transaction) -> None:
        for settler, block in ((NOW, 601), (BEFORE, 5)):
            await tx.execute("INSERT INTO chain_progress VALUES (8453, ?, ?)", (settler, block))

    await context.database.write(follow)
    _, watcher = await check_chains(Examined(Settings(chains_file=str(file)), now_s=0, opened=context.database))
    assert (watcher.level, watcher.message) == (Level.OK, "0 blocks behind chain 8453")


async def test_a_node_that_cannot_be_reached_fails(context: Context, tmp_path: Path) -> None:
    file = tmp_path / "chains.toml"
    file.write_text('[[chains]]\nid = 8453\nrpc_urls = ["http://127.0.0.1:9/KEY"]\n')
    settings = Settings(chains_file=str(file), allow_private_networks=True)
    (found,) = await check_chains(Examined(settings, now_s=0, opened=context.database))
    assert (found.check, found.level, "KEY" in str(found)) == ("chain 8453", Level.FAIL, False)


@breaks("chains")
async def test_a_chains_file_that_cannot_be_read_fails(context: Context, tmp_path: Path) -> None:
    (found,) = await check_chains(
        Examined(Settings(chains_file=str(tmp_path / "none")), now_s=0, opened=context.database)
    )
    assert found.level == Level.FAIL
