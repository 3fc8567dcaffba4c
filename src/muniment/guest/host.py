"""What the imports of a running module do, and how often they may be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from muniment.guest.abi import Abi
from muniment.guest.limits import (
    HOST_CALLS_MAX,
    INTENT_BYTES_MAX,
    INTENTS_MAX,
    LOG_BYTES_MAX,
    LOG_CALLS_MAX,
    LOG_LINE_LENGTH_MAX,
    LOG_LINES_MAX,
)
from muniment.guest.module import QUERIES
from muniment.guest.outcomes import Stop
from muniment.guest.questions import answer_text, parse_object, parse_question
from muniment.guest.texts import Memory, read_text, write_text
from muniment.guest.types import LOG_LEVELS, Answer, IntentKind, Question
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.runs.texts import Query

_KINDS: Final[dict[str, IntentKind]] = {
    "_transfer": "transfer", "_swap": "swap", "_evmCall": "evmCall", "_sendIntent": "intent",
}  # fmt: skip

# A character has one or two units of UTF-16.
_LINE_UNITS_MAX: Final = 2 * LOG_LINE_LENGTH_MAX + 2

# A text that a module passed, to the text that it gets.
_TextCall = Callable[[str], str]


class Host:
    """The imports of one run. A call that ends the run raises `Stop`; what was collected before is kept.

    `context` is the text of `environment._getContext`, `ask` answers a question or raises `Stop`.
    """

    def __init__(self, memory: Memory, context: str, ask: Callable[[Question], Answer]) -> None:
        self._memory = memory
        self._context = context
        self._ask = ask
        self._abi = Abi()
        self._calls = 0
        self._log_calls = 0
        self._log_bytes = 0
        self._log_full = False
        self._allocating = False
        self.logs: list[str] = []
        self.logs_cut = False
        self.intents: list[tuple[IntentKind, bytes]] = []

    def function(self, module: str, name: str) -> Callable[..., int | None]:
        """What an import of `module.FUNCTIONS` does when it is called."""
        if name in _KINDS and module == "environment":
            return partial(self._send, _KINDS[name])
        queries: dict[str, Query] = {f"_{query}Query": query for query in QUERIES}
        if name in queries and module == "environment":
            query = queries[name]
            return self._answering(f"the question {query}", lambda text: self._answer(query, text))
        functions: dict[tuple[str, str], Callable[..., int | None]] = {
            ("env", "abort"): self._abort,
            ("log", "_log"): self._log,
            ("environment", "_getContext"): self._get_context,
            ("evm", "_encode"): self._answering("the argument of encode", self._abi.encode),
            ("evm", "_decode"): self._answering("the argument of decode", self._abi.decode),
            ("evm", "_keccak"): self._answering("the argument of keccak", _keccak),
            ("svm", "_findProgramAddress"): self._find_program_address,
        }
        return functions[module, name]

    def give_text(self, text: str, what: str) -> int:
        """A pointer to `text` in the memory of the module. Raises `Stop`."""
        self._allocating = True
        try:
            return write_text(self._memory, text, what)
        finally:
            self._allocating = False

    def _answering(self, what: str, call: _TextCall) -> Callable[[int], int]:
        def answer(pointer: int) -> int:
            self._count()
            return self.give_text(call(read_text(self._memory, pointer, what)), f"the answer to {what}")

        return answer

    def _count(self) -> None:
        self._check_turn()
        self._calls += 1
        if self._calls > HOST_CALLS_MAX:
            raise Stop("limit-host-calls", f"more than {HOST_CALLS_MAX} calls of imports")

    def _check_turn(self) -> None:
        """Refuse a call that comes while `__new` of the module runs: it could recurse without end. Raises `Stop`."""
        if self._allocating:
            raise Stop("bad-text", "its __new calls an import")

    def _abort(self, message: int, file: int, line: int, column: int) -> None:
        words = self._words(message) or "abort"
        self._log_last(f"[Error] {words[:LOG_LINE_LENGTH_MAX]}")
        place = f" (at {self._words(file)}:{line}:{column})" if file else ""
        raise Stop("abort", f"{words}{place}")

    def _words(self, pointer: int) -> str:
        """The text at `pointer` for a message; empty if there is none."""
        try:
            return read_text(self._memory, pointer, "a message", _LINE_UNITS_MAX) if pointer else ""
        except Stop:
            return ""

    def _log_last(self, line: str) -> None:
        """End the log with this line, in place of others where it has no room."""
        line = line.replace("\0", "\ufffd")
        while self.logs and (
            len(self.logs) >= LOG_LINES_MAX or sum(len(each.encode()) for each in (*self.logs, line)) > LOG_BYTES_MAX
        ):
            self.logs.pop()
            self.logs_cut = True
        self.logs.append(line)

    def _log(self, level: int, pointer: int) -> None:
        self._check_turn()
        self._log_calls += 1
        if self._log_calls > LOG_CALLS_MAX:
            raise Stop("limit-log-calls", f"more than {LOG_CALLS_MAX} log lines")
        if self._log_full:
            return
        if not 0 <= level < len(LOG_LEVELS):
            raise Stop("bad-argument", f"a log line of level {level}; 0 to {len(LOG_LEVELS) - 1} are taken")
        text = read_text(self._memory, pointer, "a log line", _LINE_UNITS_MAX)
        line = f"[{LOG_LEVELS[level]}] {text[:LOG_LINE_LENGTH_MAX]}".replace("\0", "\ufffd")
        self._log_bytes += len(line.encode())
        self._log_full = len(self.logs) == LOG_LINES_MAX or self._log_bytes > LOG_BYTES_MAX
        self.logs_cut = self.logs_cut or self._log_full or len(text) > LOG_LINE_LENGTH_MAX
        if not self._log_full:
            self.logs.append(line)

    def _get_context(self) -> int:
        self._count()
        return self.give_text(self._context, "the context")

    def _answer(self, query: Query, text: str) -> str:
        return answer_text(query, self._ask(parse_question(query, text)))

    def _find_program_address(self, pointer: int) -> int:
        raise Stop("refused-call", f"svm._findProgramAddress ({pointer}): there are no other chains than EVM chains")

    def _send(self, kind: IntentKind, pointer: int) -> None:
        self._count()
        if len(self.intents) == INTENTS_MAX:
            raise Stop("limit-intents", f"more than {INTENTS_MAX} intents")
        text = read_text(self._memory, pointer, "an intent")
        body = text.encode()
        if len(body) > INTENT_BYTES_MAX:
            raise Stop("limit-intent-bytes", f"an intent of {len(body)} bytes; {INTENT_BYTES_MAX} are taken")
        parse_object(text)
        self.intents.append((kind, body))


def _keccak(text: str) -> str:
    return f"0x{keccak256(text.encode()).hex()}"
