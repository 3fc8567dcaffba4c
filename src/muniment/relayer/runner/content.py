"""What a run is to publish: its record, and its intents with the lines of its log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from msgspec.structs import replace

from muniment.protocol.evm.hex import HexString
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.texts import LogId, LogText
from muniment.protocol.intents.types import AnyNewIntent, LogLevel, NewLog
from muniment.protocol.json_text import parse_json
from muniment.protocol.runs.hashes import hash_of
from muniment.protocol.runs.types import LOGS_SHOWN, NewRun
from muniment.protocol.wire import Record, encode

# The levels of lines such as `[Warning] text`, as those of an intent's log.
_LEVELS: Final[dict[str, LogLevel]] = {
    "Critical": "critical", "Error": "error", "Warning": "warning", "Info": "info", "Debug": "debug",
}  # fmt: skip
_LINE_BYTES_MAX: Final = 4 * 1024


class Content(Record, frozen=True):
    """What a run is to publish: its record, and its intents in the registry's form."""

    run: NewRun
    intents: list[Any]

    @classmethod
    def of(cls, run: NewRun, intents: Sequence[AnyNewIntent]) -> Content:
        """The content of a run, each intent with the lines of its log."""
        hash_ = "0x" + hash_of(run).hex()
        logs = _lines(run, hash_)
        return cls(run=run, intents=[
            replace(each, execution_hash=HexString.parse(hash_), logs=logs) for each in intents
        ])  # fmt: skip

    @classmethod
    def read(cls, body: bytes) -> tuple[NewRun, list[AnyNewIntent]]:
        """The record and the intents in the bytes of a journal."""
        content = cast("dict[str, Any]", parse_json(body))
        run: NewRun = decode_record(content["run"], NewRun)
        return run, [decode_record(each, AnyNewIntent) for each in content["intents"]]

    def bytes_and_hash(self) -> tuple[bytes, bytes]:
        """The bytes for the journal, and the hash of the run."""
        return encode(self), hash_of(self.run)


def _lines(run: NewRun, hash_: str) -> list[NewLog]:
    """The first lines of the run's log, as lines of the log of its intents."""
    return [
        NewLog(level=_level(line), data=LogText.parse(_within(line)), id=LogId.parse(f"{hash_}/{n}"))
        for n, line in enumerate(run.logs[:LOGS_SHOWN])
        if line
    ]


def _level(line: str) -> LogLevel:
    return _LEVELS.get(line.partition("]")[0].removeprefix("["), "info")


def _within(line: str) -> str:
    """As much of a line as the log of an intent takes."""
    return line.encode()[:_LINE_BYTES_MAX].decode("utf-8", "ignore")
