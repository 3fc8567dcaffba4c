"""Children that a module took over: whatever they send, a run has an outcome and its parent bounded memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from each_row import each_row
from muniment.guest import limits
from muniment.guest.children import Child, Children, End
from muniment.guest.confinement import Confinement
from muniment.guest.frames import Asked, Coded, Done, Failed, FromChild, Given, Ready, frame
from muniment.guest.sandbox import Sandbox
from muniment.guest.types import Answer, Compiled, GuestRun, Question


def asked(value: bytes) -> bytes:
    """A question whose only parameter is `value`, in MessagePack."""
    data = frame(Asked(Question("evmCall", {"to": "here"})))[4:].replace(b"\xa4here", value)
    return len(data).to_bytes(4, "big") + data


READY = frame(Ready(Confinement()))
COMPILED = Compiled(sha256=b"", code=b"x")


class Lying(Children):
    """Children that send these bytes, whatever they are sent, and then close."""

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self._said = said

    @asynccontextmanager
    async def child(self) -> AsyncGenerator[Child]:
        ours, its = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        _, its_writer = await asyncio.open_connection(sock=its)
        its_writer.write(self._said)
        its_writer.write_eof()
        end: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        end.set_result(End(0, 0))
        try:
            yield Child(reader, writer, end)
        finally:
            for each in (writer, its_writer):
                each.transport.abort()
                with suppress(OSError):
                    await each.wait_closed()


async def _answer(_: Question) -> Answer:
    return Answer(success=True)


async def run_of(said: bytes) -> GuestRun:
    sandbox = Sandbox(Lying(said), limits.PROCESS_S)
    return await sandbox.run_module(COMPILED, context="{}", inputs={}, answer=_answer)


def done(**members: Any) -> Done:
    given: dict[str, Any] = {"reason": None, "text": "", "fuel_used": 1, "logs": [], "logs_cut": False, "intents": []}
    return Done(**{**given, **members})


async def test_an_honest_result_is_taken() -> None:
    said = READY + frame(Asked(Question("api", {}))) + frame(done(intents=[("swap", b"{}")], logs=["[Info] x"]))
    run = await run_of(said)
    assert (run.result, run.logs, [each.kind for each in run.intents]) == ("intents", ("[Info] x",), ["swap"])


LIES: dict[str, bytes] = {
    "nothing": b"",
    "half a head": b"\0\0",
    "half a frame": READY[:-1],
    "no message": b"\0\0\0\1\xc1",
    "a message of its parent": frame(Given(Answer(success=True))),
    "a result before it is ready": frame(done()),
    "ready twice": READY + READY,
    "code for a run": READY + frame(Coded("B", b"")),
    "a failure to compile for a run": READY + frame(Failed("fuel", "")),
    "four gigabytes": READY + b"\xff\xff\xff\xff",
    "one byte too many": READY + (limits.RESULT_BYTES_MAX + 1).to_bytes(4, "big"),
    "a long confinement": (1_025).to_bytes(4, "big"),
    "an unknown query": READY + frame(Asked(Question("evmCall", {}))).replace(b"evmCall", b"evmSend"),
    "a number in a question": READY + asked(b"\x07"),
    "nothing in a question": READY + asked(b"\xc0"),
    "bytes in a question": READY + asked(b"\xc4\x01x"),
    "lists in lists in a question": READY + asked(b"\x91\x91\x90"),
    "an object with a number as name in a question": READY + asked(b"\x91\x82\x01\xa1x\xa1y\xa1x"),
    "a question that is longer than a text": READY + asked(b"\xdd\x00\x10\x00\x00" + b"\x80" * 2**20),
    "an unknown reason": READY + frame(done(reason="fuel")).replace(b"fuel\xa4", b"fire\xa4"),
    "33 intents": READY + frame(done(intents=[("swap", b"{}")] * 33)),
    "a long intent": READY + frame(done(intents=[("swap", b"{%s}" % (b" " * limits.INTENT_BYTES_MAX))])),
    "201 log lines": READY + frame(done(logs=["x"] * 201)),
    "long log lines": READY + frame(done(logs=["x" * 40_000] * 2)),
    "a log line of 4,012 characters": READY + frame(done(logs=["x" * 4_012])),
    "a log line with U+0000": READY + frame(done(logs=["[Info] \0"])),
    "intents of a stopped run": READY + frame(done(reason="abort", intents=[("swap", b"{}")])),
    "more fuel than there is": READY + frame(done(fuel_used=limits.FUEL + 1)),
    "less than no fuel": READY + frame(done(fuel_used=-1)),
}


@each_row("said", LIES.values(), ids=LIES.keys())
async def test_what_no_child_sends_is_a_crash(said: bytes) -> None:
    run = await run_of(said)
    assert (run.result, run.reason, run.intents) == ("stopped", "crash", ())
    if b"asked" in said:
        assert run.text == "the process sent a frame that is no message"


async def test_a_frame_that_is_too_long_is_not_waited_for() -> None:
    for length in (limits.RESULT_BYTES_MAX + 1, 2**32 - 1):
        run = await run_of(READY + length.to_bytes(4, "big"))
        assert run.text == f"the process sent a frame of {length} bytes; {limits.RESULT_BYTES_MAX} are taken"


@each_row("body", [b"", b"[]", b"{", b"\xff", b'{"a":1,"a":1}'])
async def test_an_intent_that_is_no_object_is_refused_by_the_parent_too(body: bytes) -> None:
    run = await run_of(READY + frame(done(intents=[("transfer", body)])))
    assert (run.result, run.reason, run.intents) == ("stopped", "bad-argument", ())


async def test_a_long_text_is_cut() -> None:
    run = await run_of(READY + frame(done(reason="abort", text="x" * 5_000)))
    assert (len(run.text), run.reason) == (limits.REASON_LENGTH_MAX, "abort")


async def test_a_child_that_compiles_cannot_ask() -> None:
    sandbox = Sandbox(Lying(READY + frame(Asked(Question("api", {})))), limits.PROCESS_S)
    compiled = await sandbox.compile_module(b"x")
    assert compiled.failure
    assert compiled.failure.reason == "crash"


async def test_a_child_asks_no_more_than_a_module_can() -> None:
    question = frame(Asked(Question("api", {})))
    assert (await run_of(READY + question * limits.HOST_CALLS_MAX + frame(done()))).result == "nothing"
    run = await run_of(READY + question * (limits.HOST_CALLS_MAX + 1) + frame(done()))
    assert (run.reason, run.text) == ("crash", "the process asked more than it may")


async def test_a_child_that_is_confined_less_than_the_first_gets_no_job() -> None:
    sandbox = Sandbox(Lying(READY + frame(done())), limits.PROCESS_S)
    for confinement, reason in ((Confinement(), ""), (Confinement(memory=True, seccomp=True), "crash")):
        sandbox._confinement = confinement
        run = await sandbox.run_module(COMPILED, context="{}", inputs={}, answer=_answer)
        assert run.reason == reason


async def test_a_failure_that_depends_on_the_machine_is_kept_when_it_comes_again() -> None:
    async def compiled_thrice(message: FromChild) -> list[Compiled]:
        sandbox = Sandbox(Lying(READY + frame(message)), limits.PROCESS_S)
        return [await sandbox.compile_module(b"x") for _ in range(3)]

    for message in (Failed("bad-module", ""), Coded("C", b"x")):
        first, second, third = await compiled_thrice(message)
        assert first is second is third
    first, second, third = await compiled_thrice(Failed("memory", ""))
    assert first is not second
    assert second is third


async def test_compiled_modules_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 100_000
    monkeypatch.setattr("muniment.guest.sandbox.COMPILED_KEPT_BYTES", 2 * size + 4_000)
    sandbox = Sandbox(Lying(READY + frame(Coded("B", bytes(size)))), limits.PROCESS_S)
    first, second = [await sandbox.compile_module(wasm) for wasm in (b"1", b"2")]
    assert await sandbox.compile_module(b"1") is first
    await sandbox.compile_module(b"3")  # the second is the one that was not used for longest
    assert await sandbox.compile_module(b"1") is first
    assert await sandbox.compile_module(b"2") is not second


def test_every_message_is_one_of_the_types() -> None:
    messages: list[FromChild] = [Ready(Confinement()), Failed("time", ""), Coded("C", b""), done()]
    for message in messages:
        assert msgspec.msgpack.decode(frame(message)[4:], type=FromChild) == message
