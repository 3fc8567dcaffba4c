"""The log is served as it is signed: tiles, bundles, checkpoints, and proofs for every kind of fact."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import msgspec
import pytest
from tlog_world import KEY, add_triggers, entries_of, epoch_of, turn

from builders import Bundle, TriggerDraft, Wallet, deploy, register
from conftest import Clock
from muniment.protocol.evm.hex import HexString
from muniment.protocol.log.checkpoints import check_proof, open_checkpoint, parse_proof
from muniment.protocol.log.notes import parse_note, parse_verifier_key, verified
from muniment.protocol.log.tiles import EMPTY, ENTRIES, Tile, grow, split_entries
from muniment.protocol.log.tree import leaf_hash
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.running.settings import Settings

NAME = "registry.example"
ALICE, BOB = Wallet(1), Wallet(2)
FOR_EVER = "public, max-age=31536000, immutable"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name=NAME, tlog_key=KEY)


async def index_of(client: httpx2.AsyncClient, path: str) -> int:
    """The index that a proof proves: of its entry, in the log that the registry names."""
    epochs = (await client.get("/log")).json()["epochs"]
    response = await client.get(path)
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    proof = parse_proof(response.content)
    assert proof.extra is not None
    origin = proof.checkpoint.text.partition("\n")[0]
    key = next(parse_verifier_key(each["vkeys"][0]) for each in epochs if each["origin"] == origin)
    check_proof(proof, leaf_hash(proof.extra), key)
    return proof.index


async def test_every_part_of_the_signed_tree_is_served(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    await turn(context, clock)
    await add_triggers(context, 700)
    await turn(context, clock)
    entries = await entries_of(context)
    leaves = b"".join(map(leaf_hash, entries))
    assert len(entries) == 702
    for n, widths in ((0, (1, 255, 256)), (1, (7, 256)), (2, (1, 190))):
        for width in widths:
            response = await client.get(f"/log/1/tile/{Tile(0, n, width).path}")
            assert response.content == leaves[32 * 256 * n :][: 32 * width]
            assert response.headers["cache-control"] == FOR_EVER
            response = await client.get(f"/log/1/tile/{Tile(ENTRIES, n, width).path}")
            assert split_entries(response.content, width) == entries[256 * n :][:width]
            assert ("content-encoding" in response.headers) == (width == 256)
    encoded = await client.get("/log/1/tile/1%2F000.p%2F2")  # as generated clients write it
    assert (await client.get("/log/1/tile/1/000.p/2")).content == encoded.content
    assert len((await client.get("/log/1/tile/1/000.p/1")).content) == 32
    (shown,) = (await client.get("/log")).json()["epochs"]
    assert (shown["size"], shown["state"], shown["prefix"], shown["why"]) == (702, "open", "log/1", None)
    response = await client.get("/log/1/checkpoint")
    keys = [parse_verifier_key(each) for each in shown["vkeys"]]
    note = parse_note(response.content)
    assert open_checkpoint(note, keys[0]).size == 702
    assert sorted(verified(note, keys).values()) == [0, context.clock.now_ms() // 1000]
    assert response.headers["cache-control"] == "public, max-age=2"


@pytest.mark.one_engine
async def test_a_trailing_slash_is_404(client: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    await deploy(client)
    await turn(context, clock)
    for path in ("0/000/", "0/000.p/4/", "entries/000/", ""):
        response = await client.get(f"/log/1/tile/{path}")
        assert (response.status_code, response.json()["code"]) == (404, "unknown-path"), path


async def code_of(client: httpx2.AsyncClient, path: str, status: int = 404) -> str:
    response = await client.get(path)
    assert response.status_code == status, response.text
    if status == 404 and path.startswith("/log/"):
        assert response.headers["cache-control"] == "no-store"
    return response.json()["code"]


async def sign_less(context: Context, note: str, size: int) -> None:
    """Show an earlier checkpoint again: so a replica shows it, or a process that is killed before it signs."""
    sql = "UPDATE tlog_epochs SET note = ?, note_size = ?"
    await context.database.write(lambda tx: tx.execute(sql, (note, size)))


async def test_nothing_is_served_before_it_is_signed(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    assert (await client.get("/log")).json() == {"epochs": []}
    assert await code_of(client, "/log/1/checkpoint") == "log-part-not-found"
    cid = await deploy(client)
    before = await turn(context, clock)
    trigger = await register(client, TriggerDraft(cid))
    proof = f"/triggers/{trigger['sig']}/proof"
    response = await client.get(proof)
    assert (response.json()["code"], response.headers["retry-after"]) == ("not-logged-yet", "2")
    await add_triggers(context, 300)
    await turn(context, clock)
    assert await index_of(client, proof) == before.size
    assert before.note
    await sign_less(context, before.note, before.size)
    assert await code_of(client, proof) == "not-logged-yet"
    for path in ("0/000", "entries/000", "1/000.p/1", "0/000.p/4", "entries/000.p/4", "0/001.p/1"):
        assert await code_of(client, f"/log/1/tile/{path}") == "log-part-not-found"
    assert len((await client.get("/log/1/tile/0/000.p/3")).content) == 96  # cut out of the full tile
    assert len(split_entries((await client.get("/log/1/tile/entries/000.p/3")).content, 3)) == 3


async def test_each_fact_is_proved_at_its_index(client: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    cid = await deploy(client, wallet=ALICE)
    await deploy(client, wallet=BOB)  # the same bytes: another creator of the same function
    trigger = await register(client, TriggerDraft(cid, BOB))
    await turn(context, clock)
    other = await deploy(client, Bundle(version="2.0.0"), wallet=BOB)
    await add_triggers(context, 500)
    signature = BOB.sign_deactivation([trigger["sig"]])
    consent = {"triggerSigs": [trigger["sig"]], "signature": signature}
    assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
    await turn(context, clock)
    entries = await entries_of(context)
    assert await index_of(client, f"/functions/{cid}/proof") == 1
    assert await index_of(client, f"/functions/{cid}/proof?creator={BOB.address}") == 2
    assert await index_of(client, f"/triggers/{trigger['sig']}/proof") == 3
    assert await index_of(client, f"/functions/{other}/proof") == 5
    for n in (1, 250, 251, 252, 500):
        sig = HexString.from_raw(n.to_bytes(32) * 2 + b"\x1b")
        index = await index_of(client, f"/triggers/{sig}/proof")
        assert sig.encode() in entries[index]
    assert await index_of(client, f"/deactivations/{signature}/proof") == len(entries) - 1
    again = ALICE.sign_deactivation([trigger["sig"]])
    assert await code_of(client, f"/deactivations/{again}/proof") == "nothing-deactivated"
    assert await code_of(client, f"/triggers/{again}/proof") == "trigger-not-found"
    assert await code_of(client, f"/functions/{other}/proof?creator={ALICE.address}") == "function-not-found"


async def test_facts_of_an_epoch_that_is_closed_are_proved_in_it(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    cid = await deploy(client)
    trigger = await register(client, TriggerDraft(cid))
    await turn(context, clock)
    opened = await epoch_of(context)
    new = msgspec.structs.replace(opened, epoch=2, origin=f"{NAME}/log/2", note=None, note_size=0, backfilled=0)
    await context.database.write(lambda tx: store.begin(tx, new, grow(EMPTY, [b"first"]).edge))
    assert await index_of(client, f"/triggers/{trigger['sig']}/proof") == 2
    epochs = (await client.get("/log")).json()["epochs"]
    assert [(each["prefix"], each["state"]) for each in epochs] == [("log/2", "open"), ("log/1", "closed")]
    assert await code_of(client, "/log/2/checkpoint") == "log-part-not-found"


async def test_a_record_that_was_changed_has_no_proof(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    trigger = await register(client, TriggerDraft(await deploy(client), description="as it was signed"))
    await turn(context, clock)
    assert await index_of(client, f"/triggers/{trigger['sig']}/proof") == 2
    sql = "UPDATE triggers SET record = replace(record, 'as it was', 'as if it was')"
    await context.database.write(lambda tx: tx.execute(sql))
    assert await code_of(client, f"/triggers/{trigger['sig']}/proof", 500) == "integrity"


NO_TILES = (
    "0/0", "0/x000/001", "8/000", "0/000.p/0", "0/000.p/256", "0/000.p/01", "entries/1", "-1/000",
    "0/999999", "%ff/000", "7/x999/x999/999",
)  # fmt: skip


@pytest.mark.one_engine
async def test_a_path_that_no_tile_has_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for path in NO_TILES:
        with subtests.test(path):
            response = await client.get(f"/log/1/tile/{path}")
            assert (response.status_code, response.json()["code"]) == (400, "invalid-parameter")


@pytest.mark.one_engine
async def test_a_number_that_no_epoch_has_is_refused(client: httpx2.AsyncClient) -> None:
    for number in ("0", "01", "x", "-1", "1000000000"):
        assert await code_of(client, f"/log/{number}/checkpoint", 400) == "invalid-parameter", number
    assert await code_of(client, "/log/999999999/checkpoint") == "log-part-not-found"


async def test_a_tile_of_the_tail_reads_and_hashes_each_entry_once(
    client: httpx2.AsyncClient, context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer has 32 bytes, and whoever asks for it again and again makes no work."""
    hashed: list[bytes] = []

    def counted(entry: bytes) -> bytes:
        hashed.append(entry)
        return leaf_hash(entry)

    await turn(context, clock)
    await add_triggers(context, 200)
    await turn(context, clock)
    monkeypatch.setattr("muniment.service.resources.log.reading.leaf_hash", counted)
    for width in (1, 202, 7, 202):
        assert (await client.get(f"/log/1/tile/{Tile(0, 0, width).path}")).status_code == 200
    assert len(hashed) == 202  # two are of the log itself
    await add_triggers(context, 30, first=1_000)
    await turn(context, clock)
    entries = await entries_of(context)
    assert (await client.get(f"/log/1/tile/{Tile(0, 0, 231).path}")).content == b"".join(map(leaf_hash, entries[:231]))
    assert len(hashed) == 232
    await add_triggers(context, 100, first=2_000)
    await turn(context, clock)
    entries = await entries_of(context)
    for n, width in ((0, 231), (0, 256), (1, 70)):
        response = await client.get(f"/log/1/tile/{Tile(0, n, width).path}")
        assert response.content == b"".join(map(leaf_hash, entries[256 * n :][:width]))
    assert len(hashed) == 232 + 76
