"""Importing: lines, batches, and what is written when some lines are refused."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import pytest

from each_row import each_row
from intent_lines import joined, line, log, proposal
from muniment.chains.catalogue import CATALOGUE
from muniment.protocol.errors import DatabaseUnavailable, Refusal
from muniment.protocol.intents.texts import LOG_BYTES_MAX
from muniment.protocol.intents.types import LOGS_MAX, PROPOSALS_MAX
from muniment.protocol.wire import encode
from muniment.service.context import Context
from muniment.service.resources.intents import json_lines, recording
from muniment.service.resources.intents.json_lines import (
    LINE_BYTES_MAX,
    LINES_PER_BATCH,
    Exported,
    Import,
    Line,
    Progress,
    Tally,
    check_line,
    in_batches,
    read_lines,
)  # fmt: skip
from muniment.service.storage.database import Transaction

pytestmark = pytest.mark.spoils_events("rows are removed between two imports")
SOURCE = "sha256:" + "ab" * 32
NOW_MS = 1_795_204_080_123


@dataclass
class World:
    """A registry, and the refusals and the shared nonces of the last import into it."""

    context: Context
    refused: list[tuple[int, Refusal]] = field(default_factory=list)
    shared: list[tuple[int, str]] = field(default_factory=list)

    def job(
        self, progress: Progress | None = None, *, source: str | None = SOURCE, lines_per_batch: int = LINES_PER_BATCH
    ) -> Import:
        self.refused, self.shared = [], []
        return Import(
            database=self.context.database, protocol="Mimic", chains=CATALOGUE, grace_s=3600,
            now_ms=self.context.clock.now_ms, source=source, progress=progress or Progress(),
            lines_per_batch=lines_per_batch,
            on_refused=lambda n, x: self.refused.append((n, x)), on_shared=lambda n, x: self.shared.append((n, x)),
        )  # fmt: skip

    async def run(self, data: bytes) -> Tally:
        job = self.job()
        assert await job.run(io.BytesIO(data), lambda: True)
        return job.tally

    async def export(self) -> bytes:
        return b"".join([piece async for piece in json_lines.exported_lines(self.context.database, Exported())])

    async def count(self, table: LiteralString) -> int:
        ((count,),) = await self.context.database.fetch(f"SELECT COUNT(*) FROM {table}")
        return count

    async def clear(self) -> None:
        """Forget every intent."""

        async def work(tx: Transaction) -> None:
            for table in ("audit_entries", "intent_logs", "intent_proposals", "intents"):
                await tx.execute(f"DELETE FROM {table}")

        await self.context.database.write(work)


@pytest.fixture
def world(context: Context) -> World:
    return World(context)


def read(data: bytes, after: Progress | None = None, *, line_bytes_max: int = LINE_BYTES_MAX) -> list[Line]:
    lines = read_lines(io.BytesIO(data), after or Progress(), line_bytes_max=line_bytes_max, skipped_per_read=7)
    return list(lines)


def test_lines_end_in_lf_or_crlf_and_the_last_may_have_no_end() -> None:
    assert read(b"a\nb\r\n\nc") == [Line(1, 2, b"a"), Line(2, 5, b"b"), Line(3, 6, b""), Line(4, 7, b"c")]


def test_lines_are_numbered_on_from_where_an_import_stood() -> None:
    assert read(b"c\n", Progress(2, 5, 1)) == [Line(3, 7, b"c")]


@each_row("end", [b"\n", b"\r\n"])
def test_a_line_of_the_greatest_length_is_whole(end: bytes) -> None:
    assert [each.text for each in read(b"12345" + end + b"ab\n", line_bytes_max=5)] == [b"12345", b"ab"]


@each_row("excess", [1, 2, 3, 100])
@each_row("end", [b"\n", b"\r\n"])
def test_a_longer_line_is_skipped_to_its_end(excess: int, end: bytes) -> None:
    long = b"1" * (5 + excess) + end
    lines = read(long + b"ab\n", line_bytes_max=5)
    assert lines == [Line(1, len(long), None), Line(2, len(long) + 3, b"ab")]
    assert read(long.removesuffix(end), line_bytes_max=5) == [Line(1, 5 + excess, None)]


def test_batches_are_bounded_in_lines_and_bytes() -> None:
    texts = [b"1", b"1", b"1", b"123456789", b"1", b"1" * 50, b"1"]
    batches = in_batches((Line(n, n, text) for n, text in enumerate(texts)), lines_max=3, bytes_max=10)
    assert [[each.number for each in batch] for batch in batches] == [[0, 1, 2], [3, 4], [5], [6]]


def test_the_longest_intent_that_an_export_writes_fits_a_line() -> None:
    text = encode(log(0, data="\1" * LOG_BYTES_MAX, id="\1" * 100, level="critical"))
    rest = json_lines.HEAD_BYTES_MAX + PROPOSALS_MAX * json_lines.PROPOSAL_BYTES_MAX
    assert rest + LOGS_MAX * (len(text) + 1) < LINE_BYTES_MAX


@each_row(
    ("text", "code"),
    [
        (b"{", "invalid-json"),
        (b'{"op":"\xff"}', "invalid-json"),
        (line(1)[:-1] + b',"op":1}', "invalid-json"),
        (b"[]", "invalid-body"),
        (b"{}", "invalid-body"),
        (line(1, user="0x12"), "invalid-address"),
        (line(1, op=4), "invalid-body"),
        (line(1, hash="0x" + "00" * 32), "hash-mismatch"),
        (line(1, status="lost"), "invalid-body"),
        (None, "invalid-body"),
    ],
    ids=["no JSON", "not UTF-8", "two members", "array", "empty", "address", "op", "hash", "status", "too long"],
)
def test_a_bad_line_is_refused_with_the_code_of_its_fault(text: bytes | None, code: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_line(text, protocol="Mimic", chains=CATALOGUE, now_ms=NOW_MS)
    assert caught.value.code == code


@each_row("text", [b"", b" \t", b"\r"])
def test_a_blank_line_is_no_intent(text: bytes) -> None:
    assert check_line(text, protocol="Mimic", chains=CATALOGUE, now_ms=NOW_MS) is None


async def test_every_good_line_is_written_around_bad_and_blank_ones(world: World) -> None:
    tally = await world.run(joined([line(1), b"{", b"", line(2), b"\xff", line(3)]))
    assert tally == Tally(stored=3, refused=2, blank=1)
    assert [n for n, _ in world.refused] == [2, 5]
    assert await world.count("intents") == 3


async def test_the_author_in_the_audit_log_is_import(world: World) -> None:
    await world.run(joined([line(1), line(2)]))
    rows = await world.context.database.fetch("SELECT DISTINCT operator FROM audit_entries")
    assert rows == [("import",)]


async def test_the_same_line_twice_is_one_intent(world: World) -> None:
    assert await world.run(joined([line(1), line(1)])) == Tally(stored=1, unchanged=1)
    assert await world.run(joined([line(1)])) == Tally(unchanged=1)
    assert await world.count("intents") == 1


# Each line that can be refused by the database alone: a status that goes backwards.
BACK = (line(1, status="succeeded"), line(1, status="enqueued"))


@pytest.mark.parametrize(
    "batch",
    [
        [*BACK, line(2)],
        [line(2), *BACK],
        [BACK[0], line(2), BACK[1], line(3), BACK[1]],
        [BACK[0], *[BACK[1]] * 4, line(2)],
        [b"{", BACK[0], b"{", BACK[1], b"{", line(2), BACK[1], b"{"],
    ],
    ids=["middle", "last", "two", "in a row", "among bad ones"],
)
async def test_a_line_that_contradicts_what_is_recorded_costs_no_other(world: World, batch: list[bytes]) -> None:
    tally = await world.run(joined(batch))
    wrong = [n for n, text in enumerate(batch, 1) if text in {BACK[1], b"{"}]
    assert [n for n, _ in world.refused] == wrong
    assert tally == Tally(stored=len(batch) - len(wrong), refused=len(wrong))
    assert await world.count("intents") == tally.stored
    assert await world.count("audit_entries") == tally.stored


async def test_a_refused_line_leaves_nothing_half_done(world: World) -> None:
    await world.run(joined([line(1, status="succeeded")]))
    before = await world.export()
    await world.run(joined([line(1, status="enqueued", proposals=[proposal(1)], logs=[log(1)])]))
    assert world.refused[0][1].code == "status-conflict"
    assert await world.export() == before


async def test_refused_lines_cost_no_more_the_more_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    record = recording.record

    async def counted(tx: Any, checked: Any, *rest: Any) -> bool:
        tried.append(checked.new.nonce)
        return await record(tx, checked, *rest)

    monkeypatch.setattr(recording, "record", counted)  # the number of tries is seen nowhere else
    batch = [text for n in range(2, 40) for text in (line(n, status="succeeded"), line(n, status="created"))]
    await world.run(joined(batch))
    assert len(world.refused) == 38
    assert len(tried) <= 4 * len(batch)  # each twice, and the engine may run a transaction again that was refused


async def test_progress_is_committed_with_the_lines_it_counts(world: World) -> None:
    texts = [line(1), b"{", line(2), line(3), line(4)]
    job = world.job(lines_per_batch=2)
    answers = iter([True, False])
    assert not await job.run(io.BytesIO(joined(texts)), lambda: next(answers))
    progress = await json_lines.progress_of(world.context.database, SOURCE)
    assert progress == job.progress == Progress(4, len(joined(texts[:4])), 1)
    assert await world.count("intents") == 3


async def test_an_interrupted_import_goes_on_to_the_same_end(world: World) -> None:
    texts = [line(1), b"{", line(2), line(2), *BACK, line(3), b"", line(4)]
    await world.run(joined(texts))
    whole, entries = await world.export(), await world.count("audit_entries")
    await world.clear()
    file, stood = io.BytesIO(joined(texts)), list[Progress]()
    while not stood or stood[-1].lines < len(texts):
        job = world.job(await json_lines.progress_of(world.context.database, SOURCE), lines_per_batch=2)
        file.seek(job.progress.bytes)
        assert not await job.run(file, lambda: False)
        stood.append(job.progress)
    assert [(each.lines, each.refused) for each in stood] == [(2, 1), (4, 1), (6, 2), (8, 2), (9, 2)]
    assert (await world.export(), await world.count("audit_entries")) == (whole, entries)


async def test_a_finished_import_is_forgotten(world: World) -> None:
    await world.run(joined([line(1)]))
    assert await json_lines.progress_of(world.context.database, SOURCE) == Progress()
    assert await world.count("imports") == 0


async def test_nothing_is_kept_of_a_source_without_a_name(world: World) -> None:
    job = world.job(source=None)
    await job.add(read(joined([line(1)])))
    assert await world.count("imports") == 0


@pytest.mark.long
async def test_a_database_that_fails_ends_the_import(world: World) -> None:
    job = world.job()
    await world.context.database.close()
    with pytest.raises(DatabaseUnavailable):
        await job.run(io.BytesIO(joined([line(1)])), lambda: True)
    assert world.refused == []


def test_a_file_is_known_by_what_it_holds(tmp_path: Path) -> None:
    def name_of(name: str, data: bytes) -> str | None:
        (tmp_path / name).write_bytes(data)
        with (tmp_path / name).open("rb") as file:
            found = json_lines.fingerprint(file)
            assert file.tell() == 0
            return found

    assert name_of("a", b"1") == name_of("b", b"1") != name_of("a", b"2")


def test_a_pipe_has_no_name() -> None:
    with open("/dev/null", "rb") as file:  # noqa: PTH123 - a device
        assert json_lines.fingerprint(file) is None


async def test_what_is_exported_is_exported_again_after_an_import(world: World) -> None:
    texts = [
        line(1, status="succeeded", transactionHash="0x" + "0a" * 32, destTransactionHash="0x" + "0b" * 32),
        line(2, deadline="1", status="enqueued", executionHash="0xab"),
        line(3, deadline="1", status="expired"),
        line(4, status="submitted", proposals=[proposal(n, status="accepted") for n in range(120)]),
        line(5, logs=[log(n, id=f"é{n}" if n % 2 else None) for n in range(1_100)]),
    ]
    await world.run(joined(texts))
    exported = Exported()
    first = b"".join([piece async for piece in json_lines.exported_lines(world.context.database, exported)])
    assert exported == Exported(intents=5, proposals=120, logs=1_100, bytes=len(first))
    assert [b'"status":"enqueued"' in each for each in first.splitlines()] == [False, True, False, False, False]
    await world.clear()
    assert await world.run(first) == Tally(stored=5)
    assert await world.export() == first


async def test_what_the_chain_says_is_exported(world: World) -> None:
    await world.run(joined([line(1)]))
    sql = "UPDATE intents SET chain_status = 'succeeded', standing = 'succeeded', chain_transaction_hash = ?"
    await world.context.database.write(lambda tx: tx.execute(sql, (b"\x0c" * 32,)))
    text = await world.export()
    assert b'"status":"succeeded","transactionHash":"0x' + b"0c" * 32 in text
