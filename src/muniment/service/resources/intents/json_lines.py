"""Intents as JSON lines: one intent a line, as `GET /intents/{hash}` answers it or `PUT` takes it.

An export has the recorded status, so that a registry that imports the file records the same; in both of them `expired`
follows from the deadline. An import writes lines in batches. Each batch is one transaction, which also stores the
position in the file. So an import that was killed continues after the last written batch, and no line is counted
without being written.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Final, Protocol, TypeVar

from muniment.protocol.errors import Conflicting, DatabaseUnavailable, Invalid, InvalidBody, Refusal
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.rules import HEAD_BYTES_MAX, PROPOSAL_BYTES_MAX, check_intent
from muniment.protocol.intents.texts import LOG_BYTES_MAX
from muniment.protocol.intents.types import LOGS_MAX, PROPOSALS_MAX, AnyNewIntent
from muniment.protocol.json_text import parse_json
from muniment.service.resources.intents import recording, store
from muniment.service.resources.intents.nonces import shared_by
from muniment.service.resources.intents.store import HEAD_COLUMNS, Head
from muniment.service.resources.operators import IMPORT
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.protocol.intents.rules import CheckedIntent
    from muniment.service.storage.database import Database, Transaction, Work

T = TypeVar("T")
# Level, time and id of a log: 100 characters, each at most `\ud83d\ude00`, and the members' names.
_LOG_REST_BYTES_MAX: Final = 2_048
# The longest line that an export writes: an intent of the largest size, each byte of its logs a control character,
# which JSON writes as six (RFC 8259 section 7). Some 317 MiB; with logs in plain text it is a third of that.
LINE_BYTES_MAX: Final = (
    HEAD_BYTES_MAX + PROPOSALS_MAX * PROPOSAL_BYTES_MAX + LOGS_MAX * (6 * LOG_BYTES_MAX + _LOG_REST_BYTES_MAX)
)
# A batch ends at whichever limit comes first. A thousand lines share many pages of the indexes by hash, so half as
# much goes to disk as with batches of 256; such a batch takes the writer a fifth of a second. The bytes bound the
# memory: decoded, a line takes about ten times its length.
LINES_PER_BATCH: Final = 1_000
BYTES_PER_BATCH: Final = 2 * 2**20
# The name of the row of `leases` that imports lock in turn; it has no holder and no end.
_TURN: Final = "import"
# The pauses before a failed batch is tried again; only its operator waits for an import.
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
# Bytes of one read while the rest of a line that is too long is skipped.
_SKIPPED_PER_READ: Final = 2**20


class Source(Protocol):
    """A binary file, from which lines are read."""

    def readline(self, size: int = -1, /) -> bytes:
        """The next line with its end, or `size` bytes of it; empty at the end of the file."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its number, from 1, and the offset of its end in the file; `text` is None when it is too long."""

    number: int
    end: int
    text: bytes | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import has come: the lines and bytes that are done, and the number of refused lines among them."""

    lines: int = 0
    bytes: int = 0
    refused: int = 0


@dataclass(slots=True)
class Tally:
    """The lines of one run, counted by their outcome."""

    stored: int = 0
    unchanged: int = 0
    refused: int = 0
    blank: int = 0


@dataclass(frozen=True, slots=True)
class _Item:
    """A line with the intent to write, or with the reason why it is refused; a blank line has neither."""

    line: Line
    intent: CheckedIntent | None = None
    refusal: Refusal | None = None


class _RefusedLine(Exception):
    """Raised inside a transaction, to undo it: the line at `index` of the batch cannot be written."""

    def __init__(self, index: int, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.index = index
        self.refusal = refusal


def fingerprint(file: IO[bytes]) -> str | None:
    """The key of this file's progress: the SHA-256 of its content, so a changed file starts at its beginning.

    None for a pipe or a device: it can be read only once.
    """
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return None
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # pyright: ignore[reportArgumentType] - any binary file
    file.seek(0)
    return f"sha256:{digest}"


def read_lines(
    file: Source, after: Progress, *, line_bytes_max: int = LINE_BYTES_MAX, skipped_per_read: int = _SKIPPED_PER_READ
) -> Iterator[Line]:
    """The lines of a file whose position is `after.bytes`. Lines end in LF or CRLF; the last one may have no end."""
    number, end = after.lines, after.bytes
    while piece := file.readline(line_bytes_max + len(b"\r\n")):
        number, end = number + 1, end + len(piece)
        text = piece.removesuffix(b"\n").removesuffix(b"\r")
        if len(text) <= line_bytes_max:
            yield Line(number, end, text)
            continue
        while not piece.endswith(b"\n") and (piece := file.readline(skipped_per_read)):
            end += len(piece)
        yield Line(number, end, None)


def in_batches(
    lines: Iterable[Line], *, lines_max: int = LINES_PER_BATCH, bytes_max: int = BYTES_PER_BATCH
) -> Iterator[list[Line]]:
    """`lines` in order, in batches of one transaction each."""
    batch: list[Line] = []
    length = 0
    for line in lines:
        batch.append(line)
        length += len(line.text or b"")
        if len(batch) >= lines_max or length >= bytes_max:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def check_line(text: bytes | None, *, protocol: str, chains: Mapping[int, Chain], now_ms: int) -> CheckedIntent | None:
    """The intent of a line, None for a blank line. Raises an `Invalid` for a line that is no acceptable intent."""
    if text is None:
        raise InvalidBody(f"the line has more than {LINE_BYTES_MAX} bytes")
    if not text.strip(b" \t\r"):
        return None
    new: AnyNewIntent = decode_record(parse_json(text), AnyNewIntent)
    return check_intent(new, None, protocol=protocol, chains=chains, now_ms=now_ms)


async def progress_of(database: Database, source: str) -> Progress:
    """The stored progress of this file; zero when no import of it was begun, or the last one was finished."""
    row = await database.fetch_one("SELECT lines, bytes, refused FROM imports WHERE source = ?", (source,))
    return Progress(*row) if row else Progress()


@dataclass(slots=True, kw_only=True)
class Import:
    """One run over one file. It starts at `progress`, which then moves on with each batch that is on disk."""

    database: Database
    protocol: str
    chains: Mapping[int, Chain]
    grace_s: int
    now_ms: Callable[[], int]
    # The file's fingerprint; None: its progress is not stored.
    source: str | None
    # Called with the number of each refused line and the reason, in order, once the batch is on disk.
    on_refused: Callable[[int, Refusal], None]
    # The same for each line with an intent of the past whose nonce another intent has.
    on_shared: Callable[[int, str], None]
    progress: Progress = field(default_factory=Progress)
    tally: Tally = field(default_factory=Tally)
    lines_per_batch: int = LINES_PER_BATCH

    async def run(self, file: Source, go_on: Callable[[], bool]) -> bool:
        """Import `file` from its position `progress.bytes` on, until `go_on()` is false after a batch.

        Returns whether the end was reached.
        """
        for batch in in_batches(read_lines(file, self.progress), lines_max=self.lines_per_batch):
            await self.add(batch)
            if not go_on():
                return False
        await self.finish()
        return True

    async def add(self, batch: Sequence[Line]) -> None:
        """Write a batch; on return each of its lines is on disk or refused."""
        now_ms = self.now_ms()
        await self._write([self._checked(line, now_ms) for line in batch], now_ms)

    async def finish(self) -> None:
        """Forget the progress of the file: another import of it starts at its beginning."""

        async def forget(tx: Transaction) -> None:
            await tx.execute("DELETE FROM imports WHERE source = ?", (self.source,))

        if self.source is not None:
            await self.database.write(forget)

    def _checked(self, line: Line, now_ms: int) -> _Item:
        try:
            intent = check_line(line.text, protocol=self.protocol, chains=self.chains, now_ms=now_ms)
        except Invalid as refusal:
            return _Item(line, refusal=refusal)
        return _Item(line, intent)

    async def _write(self, items: list[_Item], now_ms: int) -> None:
        """Write `items` in one transaction, or in several around lines that contradict a recorded intent.

        Each line is in two transactions at most: the lines before a refused one are written again without it.
        """
        while items:
            try:
                await self._commit(items, now_ms)
            except _RefusedLine as found:
                before, refused = items[: found.index], items[found.index]
                refused = replace(refused, intent=None, refusal=found.refusal)
                if any(item.intent for item in before):
                    await self._write(before, now_ms)
                    before = []
                items = [*before, refused, *items[found.index + 1 :]]
            else:
                return

    async def _commit(self, items: Sequence[_Item], now_ms: int) -> None:
        refused = [item for item in items if item.refusal is not None]
        last = items[-1].line
        progress = Progress(last.number, last.end, self.progress.refused + len(refused))

        async def work(tx: Transaction) -> tuple[int, list[tuple[int, str]]]:
            await _take_turn(tx)
            moment, changed, shared = Moment(now_ms, self.grace_s), 0, list[tuple[int, str]]()
            for index, item in enumerate(items):
                if item.intent is not None:
                    if line := await shared_by(tx, item.intent.new, item.intent.hash, moment):
                        shared.append((item.line.number, line))
                    try:
                        changed += await recording.record(tx, item.intent, IMPORT, moment)
                    except (Conflicting, Invalid) as refusal:
                        raise _RefusedLine(index, refusal) from refusal
            await self._store_progress(tx, progress, now_ms)
            return changed, shared

        changed, shared = await self._written(work)
        self.progress = progress
        intents = sum(item.intent is not None for item in items)
        self.tally.stored += changed
        self.tally.unchanged += intents - changed
        self.tally.refused += len(refused)
        self.tally.blank += len(items) - intents - len(refused)
        for item in refused:
            if item.refusal is not None:
                self.on_refused(item.line.number, item.refusal)
        for number, line in shared:
            self.on_shared(number, line)

    async def _written(self, work: Work[T]) -> T:
        """Write a batch; try again when another writer holds the same intents, or the database is away."""
        for pause_s in _PAUSES_S:
            try:
                return await self.database.write(work)
            except DatabaseUnavailable:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - any chance will do
        return await self.database.write(work)

    async def _store_progress(self, tx: Transaction, progress: Progress, now_ms: int) -> None:
        if self.source is None:
            return
        await tx.execute(
            """INSERT INTO imports (source, lines, bytes, refused, updated_at_ms) VALUES (?, ?, ?, ?, ?)
               ON CONFLICT (source) DO UPDATE SET lines = excluded.lines, bytes = excluded.bytes,
                 refused = excluded.refused, updated_at_ms = excluded.updated_at_ms""",
            (self.source, progress.lines, progress.bytes, progress.refused, now_ms),
        )


async def _take_turn(tx: Transaction) -> None:
    """Hold back the batches of other imports until this one is written, so that no two lock intents crosswise."""
    await tx.execute(
        "INSERT INTO leases (name, holder, until_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (_TURN, "", 0)
    )
    await tx.fetch(f"SELECT 1 FROM leases WHERE name = ?{tx.for_update}", (_TURN,))


# Heads in memory; each has at most 256 KiB.
_HEADS_PER_READ: Final = number_text(64)


@dataclass(slots=True)
class Exported:
    """The size of an export so far."""

    intents: int = 0
    proposals: int = 0
    logs: int = 0
    bytes: int = 0


async def exported_lines(database: Database, exported: Exported) -> AsyncIterator[bytes]:
    """The intents that are recorded when this begins, piece by piece; counted in `exported`."""
    async for head in _heads(database):
        async for piece in store.pieces(database, head):
            exported.bytes += len(piece)
            yield piece
        exported.bytes += 1
        yield b"\n"
        exported.intents += 1
        exported.proposals += head.proposal_count
        exported.logs += head.log_count


_NEXT_HEADS: Final = (
    f"SELECT {HEAD_COLUMNS}, COALESCE(i.chain_status, i.status) FROM intents i WHERE i.seq > ? AND i.seq <= ? "
    f"ORDER BY i.seq LIMIT {_HEADS_PER_READ}"
)


async def _heads(database: Database) -> AsyncIterator[Head]:
    newest = await database.fetch_one("SELECT COALESCE(MAX(seq), 0) FROM intents")
    last = newest[0] if newest else 0
    done = 0
    while rows := await database.fetch(_NEXT_HEADS, (done, last)):
        for *columns, recorded in rows:
            # The time does not matter here: the recorded status replaces the one as read.
            head = Head.of(tuple(columns), Moment(0, 0))
            # Only the watcher's own lines are beyond the limit, and another registry would refuse them.
            yield replace(head, status=recorded, log_count=min(head.log_count, LOGS_MAX))
        done = rows[-1][1]
