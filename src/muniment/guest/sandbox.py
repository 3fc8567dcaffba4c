"""Compiles and runs functions, each in a process of its own that has nothing but its pipe."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.metadata import version
from typing import Final, Self

import msgspec

from muniment.guest.children import Child, ChildEnded, Children, SandboxMissing, stop_of_end
from muniment.guest.configuration import CONFIGURATION
from muniment.guest.confinement import Confinement
from muniment.guest.frames import (
    Asked,
    BadFrame,
    Coded,
    CompileJob,
    Done,
    Failed,
    FromChild,
    Given,
    Halt,
    Ready,
    RunJob,
)
from muniment.guest.limits import (
    ANSWER_BYTES_MAX,
    COMPILED_BYTES_MAX,
    COMPILED_KEPT_BYTES,
    FUEL,
    HOST_CALLS_MAX,
    INTENT_BYTES_MAX,
    LOG_BYTES_MAX,
    MODULE_BYTES_MAX,
    PROCESS_S,
    QUERIES_MAX,
    RESULT_BYTES_MAX,
)
from muniment.guest.outcomes import Stop, bounded
from muniment.guest.questions import parse_object
from muniment.guest.types import Answer, Answering, Compiled, Generation, GuestInput, GuestIntent, GuestRun, Question
from muniment.protocol.runs.reasons import is_verdict
from muniment.protocol.runs.texts import LOG_CHARACTERS_MAX

# A child that compiles may have nearly `PROCESS_MEMORY_BYTES`.
_COMPILING_MAX: Final = 2
_READY_BYTES_MAX: Final = 1024
_ENTRY_BYTES: Final = 1024
# Modules that failed once for a reason of the machine.
_FAILED_KEPT: Final = 1_000
# Only ends a start that hangs: a busy machine takes some seconds.
_START_S: Final = 60.0
_key_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


class AnswerFailed(Exception):
    """What answers questions raised `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class _Answers:
    """The answers of one run, by question; each question is asked once."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self._known: dict[bytes, Answer] = {}
        self._bytes = 0

    async def to(self, question: Question) -> Answer:
        """Raises `Stop` for a question too many, and where answers are too long; `AnswerFailed`."""
        key = _key_encoder.encode(question)
        if key not in self._known:
            if len(self._known) == QUERIES_MAX:
                raise Stop("limit-queries", f"more than {QUERIES_MAX} different questions")
            try:
                answer = await self._answer(question)
            except Exception as error:
                raise AnswerFailed(error) from error
            self._bytes += len(msgspec.json.encode(answer.data)) + len(answer.error.encode())
            if self._bytes > ANSWER_BYTES_MAX:
                raise Stop("limit-answers", f"answers of more than {ANSWER_BYTES_MAX} bytes together")
            self._known[key] = answer
        return self._known[key]


class Sandbox:
    """Compiles and runs modules. Make it by `open`; one for a process is enough.

    Each job has a child of its own. Whatever a child does becomes the outcome of its run, and is not raised.
    """

    def __init__(self, children: Children, process_s: float) -> None:
        self._children = children
        self._process_s = process_s
        self._compiled: OrderedDict[tuple[bytes, str, str], Compiled] = OrderedDict()
        self._compiling: dict[bytes, asyncio.Task[Compiled]] = {}
        self._failed: set[tuple[bytes, str, str]] = set()
        self._compilers = asyncio.Semaphore(_COMPILING_MAX)
        self._confinement = Confinement()

    @classmethod
    @asynccontextmanager
    async def open(cls, *, process_s: float = PROCESS_S) -> AsyncGenerator[Self]:
        """A sandbox, whose processes end with the block. A child has `process_s` seconds without those of answers.

        Raises `SandboxMissing` where functions cannot be run.
        """
        children = Children()
        sandbox = cls(children, process_s)
        try:
            sandbox._confinement = await sandbox._confined()
            yield sandbox
        finally:
            for task in sandbox._compiling.values():
                task.cancel()
            await asyncio.gather(*sandbox._compiling.values(), return_exceptions=True)
            await children.close()

    @property
    def confinement(self) -> Confinement:
        """How the system confines each child."""
        return self._confinement

    async def _confined(self) -> Confinement:
        try:
            async with asyncio.timeout(_START_S), self._children.child() as child:
                return await _ready(child)
        except (ChildEnded, BadFrame, TimeoutError) as error:
            # Started by hand it says what it lacks.
            raise SandboxMissing(
                "the process that runs functions does not start; to see why, run: "
                f"{sys.executable} -I -m muniment.guest.launcher"
            ) from error

    async def compile_module(self, wasm: bytes) -> Compiled:
        """A module as it is run, from memory if it is known. One that cannot be run has a `failure`."""
        digest = sha256(wasm).digest()
        key = (digest, version("wasmtime"), repr(dict(CONFIGURATION)))
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return self._compiled[key]
        task = self._compiling.get(digest)
        if task is None:
            task = self._compiling[digest] = asyncio.create_task(self._compile(key, wasm))
            task.add_done_callback(lambda _: self._compiling.pop(digest, None))
        return await asyncio.shield(task)

    async def _compile(self, key: tuple[bytes, str, str], wasm: bytes) -> Compiled:
        async with self._compilers:
            compiled = await self._compile_in_child(key[0], wasm)
        if self._is_kept(key, compiled.failure):
            self._compiled[key] = compiled
        while len(self._compiled) > 1 and self._kept_bytes() > COMPILED_KEPT_BYTES:
            self._compiled.popitem(last=False)
        return compiled

    def _is_kept(self, key: tuple[bytes, str, str], failure: GuestRun | None) -> bool:
        """Whether a module need not be compiled again.

        A busy machine is no fault of a module, but one that fails twice would cost ten seconds at each of its runs.
        """
        if failure is None or is_verdict("stopped", failure.reason or None) or key in self._failed:
            self._failed.discard(key)
            return True
        if len(self._failed) == _FAILED_KEPT:
            self._failed.clear()
        self._failed.add(key)
        return False

    def _kept_bytes(self) -> int:
        """What all compiled modules take; one without code takes some hundred bytes."""
        return sum(len(each.code) + _ENTRY_BYTES for each in self._compiled.values())

    async def _compile_in_child(self, digest: bytes, wasm: bytes) -> Compiled:
        try:
            _check_size(wasm)
            coded = _coded(await self._job(CompileJob(wasm), None, COMPILED_BYTES_MAX))
        except Stop as stop:
            return Compiled(sha256=digest, failure=_stopped(stop, "B"))
        return Compiled(sha256=digest, generation=coded.generation, code=coded.code)

    async def run_module(
        self, compiled: Compiled, *, context: str, inputs: Mapping[str, GuestInput], answer: Answering
    ) -> GuestRun:
        """What becomes of one run of a module.

        `context` is the JSON text of `environment._getContext`, `inputs` those of the trigger (`types.inputs_of`).
        `answer` is asked each question once, one at a time; what it raises ends the child and is raised here.
        """
        if compiled.failure:
            return compiled.failure
        try:
            job = RunJob(compiled.code, context, dict(inputs))
            return _run_of(await self._job(job, _Answers(answer), RESULT_BYTES_MAX), compiled.generation)
        except Stop as stop:
            return _stopped(stop, compiled.generation)
        except AnswerFailed as failed:
            raise failed.error from None

    async def _job(self, job: CompileJob | RunJob, answers: _Answers | None, length_max: int) -> FromChild:
        """The last message of a child that is given `job`. Raises `Stop` where there is none."""
        try:
            async with self._children.child() as child:
                return await self._talk(child, job, answers, length_max)
        except (ChildEnded, SandboxMissing, OSError) as error:  # no launcher, no memory, no descriptors
            raise Stop("crash", "no process could be started") from error

    async def _talk(
        self, child: Child, job: CompileJob | RunJob, answers: _Answers | None, length_max: int
    ) -> FromChild:
        loop, scope = asyncio.get_running_loop(), asyncio.timeout(self._process_s)
        try:
            async with scope:
                if await _ready(child) != self._confinement:
                    raise Stop("crash", "the system did not confine the process as it did the first one")
                await child.send(job)
                asked = 0
                while isinstance(message := await child.receive(length_max), Asked):
                    asked += 1
                    if answers is None or asked > HOST_CALLS_MAX:
                        raise Stop("crash", "the process asked more than it may")
                    seconds_left = (scope.when() or 0) - loop.time()
                    scope.reschedule(None)  # answers have limits of their own
                    reply = await _reply(answers, message.question)
                    scope.reschedule(loop.time() + seconds_left)
                    await child.send(reply)
                return message
        except ChildEnded:
            raise stop_of_end(await child.end()) from None
        except BadFrame as error:
            raise Stop("crash", f"the process sent {error}") from error
        except TimeoutError:
            raise Stop("time", f"the process was killed after {self._process_s:g} seconds") from None


async def _ready(child: Child) -> Confinement:
    message = await child.receive(_READY_BYTES_MAX)
    if not isinstance(message, Ready):
        raise BadFrame("something before it was ready")
    return message.confinement


async def _reply(answers: _Answers, question: Question) -> Given | Halt:
    try:
        return Given(await answers.to(question))
    except Stop as stop:
        return Halt(stop.reason, stop.text)


def _stopped(stop: Stop, generation: Generation) -> GuestRun:
    return GuestRun(result="stopped", reason=stop.reason, text=stop.text, generation=generation)


def _check_size(wasm: bytes) -> None:
    if len(wasm) > MODULE_BYTES_MAX:
        raise Stop("limit-code", f"a module of {len(wasm)} bytes; {MODULE_BYTES_MAX} are taken")


def _coded(last: FromChild) -> Coded:
    if isinstance(last, Failed):
        raise Stop(last.reason, last.text)
    if not isinstance(last, Coded):
        raise Stop("crash", "the process that compiles sent no code")
    return last


def _run_of(done: FromChild, generation: Generation) -> GuestRun:
    """The result that a child sent, which a module may have taken over. Raises `Stop` for what no run has."""
    if not isinstance(done, Done):
        raise Stop("crash", "the process sent no result")
    too_much = (
        any(len(body) > INTENT_BYTES_MAX for _, body in done.intents)
        or sum(len(line.encode()) for line in done.logs) > LOG_BYTES_MAX
        or any("\0" in line or len(line) > LOG_CHARACTERS_MAX for line in done.logs)
        or not 0 <= done.fuel_used <= FUEL
    )
    if too_much or (done.reason and done.intents):
        raise Stop("crash", "the process sent a result that no run has")
    intents = tuple(GuestIntent(kind, parse_object(body.decode("utf-8", "replace"))) for kind, body in done.intents)
    return GuestRun(
        result="stopped" if done.reason else "intents" if intents else "nothing", reason=done.reason or "",
        text=bounded(done.text), fuel_used=done.fuel_used, logs=tuple(done.logs), logs_cut=done.logs_cut,
        generation=generation, intents=intents,
    )  # fmt: skip
