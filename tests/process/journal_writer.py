"""A process that runs ticks by a journal, and dies whenever the test kills it. Each step is a byte on its output.

`journal_writer.py JOURNAL PUBLISHED COUNT`: publishing appends a line to PUBLISHED, `TICK BYTES`.
"""

import os
import secrets
import sys
from pathlib import Path

from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import time_payload
from muniment.relayer.journal.entries import Entry, State
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.schedule.due import Due, Seen

SIG = Signature.parse("0x" + "11" * 64 + "1b")


def main(path: Path, published: Path, count: int) -> None:
    target = os.open(published, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def step() -> None:
        os.write(1, b".")

    def publish(journal: Journal, entry: Entry) -> None:
        os.write(target, b"%d %s\n" % (entry.timestamp_ms, entry.body))
        step()
        journal.published(entry, 0)
        step()

    def run(journal: Journal, due: Due) -> None:
        # Another run of the same tick has other bytes.
        journal.ran(due, "nothing", secrets.token_hex(8).encode(), bytes(32), 0)
        step()

    with Journal.open(path) as journal:
        for entry in journal.unfinished(State.RAN):
            publish(journal, entry)
        for entry in journal.unfinished(State.PLANNED):
            run(journal, Due(entry.sig, entry.kind, entry.payload, entry.timestamp_ms, entry.until_ms))
        known = journal.known(SIG)
        decided = (Seen(0) if known is None else known.seen).decided_ms
        for at_ms in range(decided + 1, count + 1):
            due = Due(SIG, 0, time_payload(at_ms), at_ms, at_ms)
            journal.plan([due], 0)
            step()
            run(journal, due)
            for entry in journal.unfinished(State.RAN):
                publish(journal, entry)
        for entry in journal.unfinished(State.RAN):
            publish(journal, entry)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
