"""Runs as JSON lines: one run a line, as `GET /executions/{hash}` answers it.

An import records each run under the name of imports, with the address of the relayer that the line names: what
operators of another registry have said is not counted here. A run that is orphaned there is orphaned here too. It may
be repeated: a run that is recorded stays as it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from muniment.protocol.errors import Conflicting, Invalid, InvalidBody, Refusal, TooLarge, TriggerNotFound
from muniment.protocol.evm.address import Address
from muniment.protocol.forms import decode_record
from muniment.protocol.json_text import parse_json
from muniment.protocol.runs import rules
from muniment.protocol.runs.texts import RUN_BYTES_MAX
from muniment.protocol.runs.types import NewRun
from muniment.protocol.triggers.typed_data import ONCE
from muniment.service.resources.intents.json_lines import Progress, read_lines
from muniment.service.resources.operators import IMPORT, OperatorCaller
from muniment.service.resources.runs import recording, store
from muniment.service.resources.triggers.terms import find_terms
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from muniment.protocol.runs.rules import Terms
    from muniment.service.resources.intents.json_lines import Line, Source
    from muniment.service.storage.database import Database, Transaction

# Lines that are written side by side, and so share a commit.
_LINES_AT_ONCE: Final = 64
# An answer has the record of a run, and what the registry adds: records of operators, conflicts, outputs.
_LINE_BYTES_MAX: Final = 2 * RUN_BYTES_MAX
_HASHES_PER_READ: Final = number_text(500)


@dataclass(slots=True)
class Tally:
    """The lines of an import, counted by their outcome."""

    stored: int = 0
    unchanged: int = 0
    refused: int = 0
    blank: int = 0

    @property
    def lines(self) -> int:
        """All of them."""
        return self.stored + self.unchanged + self.refused + self.blank


async def exported_lines(database: Database) -> AsyncIterator[bytes]:
    """Each run that is recorded, with its line end."""
    last = 0
    while rows := await database.fetch_slow(
        f"SELECT seq, hash FROM runs WHERE seq > ? ORDER BY seq LIMIT {_HASHES_PER_READ}", (last,)
    ):
        for _, run_hash in rows:
            if (text := await store.find(database, run_hash)) is not None:  # a service may have removed it since
                yield f"{text}\n".encode()
        last = rows[-1][0]


async def import_lines(
    database: Database, file: Source, now_ms: Callable[[], int], on_refused: Callable[[int, Refusal], None]
) -> Tally:
    """Record the runs of `file`; `on_refused` gets the number of each refused line, and the reason, in order.

    Raises `DatabaseUnavailable`; what was recorded before stays.
    """
    tally, lines = Tally(), read_lines(file, Progress(), line_bytes_max=_LINE_BYTES_MAX)
    while some := list(islice(lines, _LINES_AT_ONCE)):
        outcomes = await asyncio.gather(*(_record(database, line, now_ms()) for line in some))
        for line, outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, Refusal):
                tally.refused += 1
                on_refused(line.number, outcome)
            elif outcome is None:
                tally.blank += 1
            else:
                tally.stored += outcome
                tally.unchanged += not outcome
    return tally


async def _record(database: Database, line: Line, now_ms: int) -> bool | Refusal | None:
    """Whether the run of a line is new, or why it is refused; None for a blank line."""
    if line.text is None:
        return InvalidBody(f"the line has more than {_LINE_BYTES_MAX} bytes")
    if not line.text.strip(b" \t\r"):
        return None
    try:
        return await _recorded(database, parse_json(line.text), now_ms)
    except (Invalid, TooLarge, Conflicting, TriggerNotFound) as refusal:
        return refusal


async def _recorded(database: Database, given: object, now_ms: int) -> bool:
    new, members = decode_record(given, NewRun), cast("dict[str, Any]", given)
    found = await find_terms(database, new.trigger_sig)
    if found is None:
        raise TriggerNotFound(f"no trigger is registered under {new.trigger_sig}", pointer="/triggerSig")
    seq, terms = found
    relayer = _relayer(members)
    checked = rules.check_run(new, _of_the_past(terms, new), relayer, now_ms)
    caller = OperatorCaller(IMPORT, relayer)

    async def write(tx: Transaction) -> bool:
        sent = recording.Sent(checked, seq, terms.min_validations, caller, now_ms, admit=lambda: None)
        done = await recording.record(tx, sent)
        if done.is_new and members.get("status") == "invalid":
            await recording.take_back(tx, done.seq, caller, now_ms)
        return done.is_new

    return await database.write(write, order=new.trigger_sig.raw)


def _relayer(members: dict[str, Any]) -> Address | None:
    """The address that the line names; None for the zero address, and without one."""
    text = members.get("relayer")
    address = Address.parse(text) if isinstance(text, str) else None
    return address if address is not None and any(address.raw) else None


def _of_the_past(terms: Terms, new: NewRun) -> Terms:
    """The terms without the time of registration here: the trigger may have been registered elsewhere before."""
    return replace(terms, created_at_ms=new.timestamp if new.trigger_type == ONCE else 0)
