"""Runs in processes of their own: how they begin, what they may do, how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import pytest_asyncio
from wasmtime import wat2wasm

from guest_modules import CONTEXT, Texts, module
from muniment.guest import children, limits
from muniment.guest.children import SandboxMissing
from muniment.guest.launcher import _DESCRIPTORS
from muniment.guest.sandbox import Sandbox
from muniment.guest.types import Answer, GuestInput, GuestRun, Question
from muniment.protocol.runs.reasons import StopNote

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.programs]

ASK = "environment._evmCallQuery"
ENDLESS = module("(loop $more (br $more))")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")


def asking(*numbers: int) -> bytes:
    """A module that asks for the data of calls to these addresses, and logs the last answer."""
    texts = Texts()
    asks = [f"(call ${ASK} {texts.at(_question(number))})" for number in numbers]
    body = "".join(f"(drop {ask})" for ask in asks[:-1]) + f"(call $log._log (i32.const 3) {asks[-1]})"
    return module(body, imports=[ASK, "log._log"], texts=texts, pages=200)


def _question(number: int) -> str:
    return f'{{"to":"0x{number:040x}","chainId":1,"data":"0x"}}'


async def answered(_: Question) -> Answer:
    return Answer(success=True, data="0x07")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with Sandbox.open() as opened:
        yield opened


async def run(sandbox: Sandbox, wasm: bytes, answer: Any = answered, **inputs: GuestInput) -> GuestRun:
    return await sandbox.run_module(await sandbox.compile_module(wasm), context=CONTEXT, inputs=inputs, answer=answer)


def _launcher(sandbox: Sandbox) -> int:
    process = sandbox._children._launcher
    assert process is not None
    return process.pid


def _running(sandbox: Sandbox) -> list[int]:
    """Processes of children that are there."""
    launcher = _launcher(sandbox)
    return [int(word) for word in Path(f"/proc/{launcher}/task/{launcher}/children").read_text("ascii").split()]


async def _none_running(sandbox: Sandbox) -> None:
    while _running(sandbox):
        await asyncio.sleep(0.01)


async def _only_child(sandbox: Sandbox) -> int:
    """The process of the child that runs now; the one that compiled may still be ending."""
    while len(running := _running(sandbox)) > 1:
        await asyncio.sleep(0.01)
    return running[0]


async def test_a_run_has_its_logs_intents_and_generation(sandbox: Sandbox) -> None:
    texts = Texts()
    intent = texts.at('{"a":[1]}')
    body = f"(call $log._log (i32.const 2) {texts.at('now')}) (call $environment._sendIntent {intent})"
    done = await run(sandbox, module(body, imports=["log._log", "environment._sendIntent"], texts=texts))
    assert (done.result, done.reason, done.text, done.generation) == ("intents", "", "", "C")
    assert (done.logs, done.logs_cut) == (("[Warning] now",), False)
    assert [(each.kind, each.body) for each in done.intents] == [("intent", {"a": [1]})]
    assert 0 < done.fuel_used < 1_000


async def test_a_run_without_intents_is_nothing(sandbox: Sandbox) -> None:
    assert (await run(sandbox, module(""))).result == "nothing"


async def test_inputs_reach_the_module(sandbox: Sandbox) -> None:
    before = '(import "index" "input.x" (global $x (mut i32)))'
    wasm = module("(call $log._log (i32.const 3) (global.get $x))", imports=["log._log"], before=before)
    assert (await run(sandbox, wasm, x=GuestInput("uint256", 7))).logs == ("[Info] 7",)


async def test_a_stopped_run_keeps_its_logs_and_says_what_happened(sandbox: Sandbox) -> None:
    texts = Texts()
    zero = "(i32.const 0)"
    body = (
        f"(call $log._log (i32.const 3) {texts.at('so far')}) (call $environment._transfer {texts.at('{}')})"
        f"(call $env.abort {texts.at('no more')} {zero} {zero} {zero})"
    )
    done = await run(sandbox, module(body, imports=["log._log", "environment._transfer", "env.abort"], texts=texts))
    assert (done.result, done.reason, done.text, done.intents) == ("stopped", "abort", "no more", ())
    assert done.logs == ("[Info] so far", "[Error] no more")


async def test_a_module_that_cannot_be_compiled_has_its_reason_in_each_run(sandbox: Sandbox) -> None:
    for wasm, reason in ((b"", "bad-module"), (b"\0asm\1\0\0\0", "bad-module"), (bytes(2**24 + 1), "limit-code")):
        done = await run(sandbox, wasm)
        assert (done.result, done.reason) == ("stopped", reason)


async def test_a_question_is_asked_once(sandbox: Sandbox) -> None:
    asked: list[str] = []

    async def answer(question: Question) -> Answer:
        asked.append(str(question.params["to"])[-1])
        return Answer(success=True, data=f"0x{len(asked):02x}")

    done = await run(sandbox, asking(1, 2, 1, 2, 1), answer)
    assert asked == ["1", "2"]
    assert done.logs == ('[Info] {"success":"true","data":"0x01","error":""}',)


async def test_a_run_may_ask_64_questions(sandbox: Sandbox) -> None:
    assert (await run(sandbox, asking(*range(64), 3))).result == "nothing"
    done = await run(sandbox, asking(*range(65)))
    assert (done.reason, done.logs) == ("limit-queries", ())


async def test_answers_have_128_kib_together(sandbox: Sandbox) -> None:
    def of_size(size: int) -> Any:
        async def answer(question: Question) -> Answer:
            return Answer(success=True, data="x" * (size - 2 if str(question.params["to"]).endswith("1") else 0))

        return answer

    assert (await run(sandbox, asking(1), of_size(limits.ANSWER_BYTES_MAX))).result == "nothing"
    assert (await run(sandbox, asking(1), of_size(limits.ANSWER_BYTES_MAX + 1))).reason == "limit-answers"
    assert (await run(sandbox, asking(1, 2), of_size(limits.ANSWER_BYTES_MAX))).reason == "limit-answers"


async def test_what_the_answers_raise_reaches_the_caller(sandbox: Sandbox) -> None:
    for error in (ConnectionError("no node"), TimeoutError(), ValueError("x")):

        async def answer(_: Question, error: Exception = error) -> Answer:
            raise error

        with pytest.raises(type(error)) as caught:
            await run(sandbox, asking(1), answer)
        assert caught.value is error


async def test_a_module_is_compiled_once(sandbox: Sandbox) -> None:
    wasm = module("(drop (i32.const 77))")
    before = sandbox._children._count
    first, second = await asyncio.gather(sandbox.compile_module(wasm), sandbox.compile_module(wasm))
    assert first is second is await sandbox.compile_module(bytes(bytearray(wasm)))
    assert sandbox._children._count == before + 1


async def test_many_runs_at_once_each_have_their_answers(sandbox: Sandbox) -> None:
    async def one(number: int) -> str:
        async def answer(_: Question) -> Answer:
            await asyncio.sleep(0)
            return Answer(success=True, data=str(number))

        return (await run(sandbox, asking(1), answer)).logs[0]

    logs = await asyncio.gather(*(one(number) for number in range(2 * limits.CHILDREN_MAX)))
    assert logs == [f'[Info] {{"success":"true","data":"{n}","error":""}}' for n in range(2 * limits.CHILDREN_MAX)]


@on_linux
async def test_a_child_has_its_pipe_and_nothing_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNIMENT_OPERATOR_KEY", "secret")
    seen: dict[str, Any] = {}
    with ExitStack() as many, (tmp_path / "key").open("wb") as key:
        for _ in range(_DESCRIPTORS):  # the launcher's socket gets a number after those that a child closes
            many.callback(os.close, os.dup(key.fileno()))
        os.set_inheritable(key.fileno(), True)
        async with Sandbox.open() as opened:

            async def answer(_: Question) -> Answer:
                child = await _only_child(opened)
                process = Path(f"/proc/{child}")
                seen["files"] = {each.name: str(each.readlink()) for each in (process / "fd").iterdir()}
                seen["environment"] = (process / "environ").read_bytes()
                status = (process / "status").read_text("ascii").splitlines()
                seen["status"] = dict(line.split(":\t") for line in status if ":\t" in line)
                rows = (process / "limits").read_text("ascii").splitlines()[1:]
                seen["limits"] = {row[:26].strip(): row[26:].split()[:2] for row in rows}
                return Answer(success=True)

            await run(opened, asking(1), answer)
    ((name, pipe),) = seen["files"].items()
    assert (name, pipe.partition(":")[0]) == ("0", "socket")
    assert seen["environment"] == b""
    assert (seen["status"]["NoNewPrivs"], seen["status"]["Seccomp"]) == ("1", "2")
    given = seen["limits"]
    assert given["Max address space"] == [str(limits.PROCESS_MEMORY_BYTES)] * 2
    assert (given["Max cpu time"], given["Max open files"]) == (["660", "661"], ["8", "8"])
    assert given["Max core file size"] == given["Max file size"] == ["0", "0"]


ATTEMPTS = """
import os, socket, sys, threading, time
from muniment.guest.confinement import filter_calls, restrict
key, port = sys.argv[1], int(sys.argv[2])
attempts = {
    "read the key": lambda: open(key).read(),
    "write a file": lambda: open(key + ".new", "w"),
    "list a folder": lambda: os.listdir("/"),
    "connect": lambda: socket.create_connection(("127.0.0.1", port)),
    "make a socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
    "make a pair of sockets": socket.socketpair,
    "fork": lambda: os.fork() or os._exit(0),
    "start a thread": lambda: threading.Thread(target=time.time).start(),
    "signal another process": lambda: os.kill(os.getppid(), 0),
}
def possible():
    done = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except (OSError, RuntimeError):
            continue
        done.append(name)
    return done
print(len(possible()) == len(attempts))
confinement = restrict()
with_files = possible() if confinement.landlock else []
filtered = filter_calls()
print(confinement.landlock, filtered)
print([name for name in with_files if "file" in name or "key" in name or "folder" in name])
print(possible() if filtered else [])
print(time.process_time() > 0, len(os.urandom(8)))
"""


@on_linux
async def test_a_confined_process_opens_no_file_and_no_socket(tmp_path: Path, sandbox: Sandbox) -> None:
    key = tmp_path / "operator.key"
    key.write_text("secret", "ascii")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", ATTEMPTS, str(key), str(port), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output, _ = await process.communicate()
    lines = output.decode().splitlines()
    assert lines[0] == "True", output  # each is possible before
    assert lines[1] == f"{sandbox.confinement.landlock} {sandbox.confinement.seccomp}"
    assert lines[2:] == ["[]", "[]", "True 8"], output


LOWERED = """
import resource
from muniment.guest.confinement import restrict
resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
print(restrict().memory, resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU))
"""


@on_linux
async def test_limits_that_are_lower_already_stay() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", LOWERED, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert output.decode() == f"True {(2**29, 2**29)} (5, 5)\n"


@on_linux
async def test_this_kernel_confines_children_wholly(sandbox: Sandbox) -> None:
    assert sandbox.confinement.missing == ()


async def test_a_child_that_takes_too_long_is_killed() -> None:
    async with Sandbox.open() as opened:
        compiled = await opened.compile_module(ENDLESS)
        opened._process_s = 0.1
        done = await opened.run_module(compiled, context=CONTEXT, inputs={}, answer=answered)
        assert (done.result, done.reason, done.text) == (
            "stopped", "time", "the process was killed after 0.1 seconds",
        )  # fmt: skip
        await _none_running(opened)


async def test_a_module_that_takes_too_long_to_compile_is_tried_again_next_time() -> None:
    wasm = module("(drop (i32.const 78))")
    async with Sandbox.open() as opened:
        opened._process_s = 0.0
        assert (await run(opened, wasm)).reason == "time"
        opened._process_s = limits.PROCESS_S
        assert (await run(opened, wasm)).result == "nothing"


async def test_the_time_of_answers_is_not_the_child_s(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    real, late = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real() + late[0])

    async def answer(_: Question) -> Answer:
        late[0] += 1_000
        for _turn in range(3):  # so that a timer that is due fires
            await asyncio.sleep(0)
        return Answer(success=True)

    assert (await run(sandbox, asking(1, 2, 3), answer)).result == "nothing"


@on_linux
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "memory"), (signal.SIGABRT, "memory"), (signal.SIGXCPU, "time"), (signal.SIGSEGV, "crash"),
        (signal.SIGBUS, "crash"),
    ],
)  # fmt: skip
async def test_a_child_that_a_signal_ends_has_an_outcome(sandbox: Sandbox, number: int, reason: str) -> None:
    async def answer(_: Question) -> Answer:
        child = await _only_child(sandbox)
        os.kill(child, number)
        return Answer(success=True)

    await _none_running(sandbox)
    done = await run(sandbox, asking(1), answer)
    assert (done.result, done.reason, done.intents) == ("stopped", reason, ())
    assert (await run(sandbox, asking(1))).result == "nothing"


@on_linux
async def test_a_run_that_its_caller_gives_up_leaves_no_child(sandbox: Sandbox) -> None:
    asked = asyncio.Event()

    async def answer(_: Question) -> Answer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(run(sandbox, asking(1), answer))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _none_running(sandbox)


@on_linux
async def test_a_launcher_that_ended_is_started_again() -> None:
    async with Sandbox.open() as opened:

        async def answer(_: Question) -> Answer:
            child = await _only_child(opened)
            os.kill(_launcher(opened), signal.SIGKILL)
            while _is_there(child):
                await asyncio.sleep(0.01)
            return Answer(success=True)

        first = _launcher(opened)
        done = await run(opened, asking(1), answer)
        assert (done.result, done.reason) == ("stopped", "crash")
        assert (await run(opened, asking(1))).result == "nothing"
        assert _launcher(opened) != first


@on_linux
async def test_a_run_for_which_no_process_can_be_started_has_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Sandbox.open() as opened:
        compiled = await opened.compile_module(module(""))
        launcher = _launcher(opened)
        monkeypatch.setattr(sys, "executable", "/nothing/is/here")
        os.kill(launcher, signal.SIGKILL)
        while _is_there(launcher):
            await asyncio.sleep(0.01)
        done = await opened.run_module(compiled, context=CONTEXT, inputs={}, answer=answered)
        assert (done.result, done.reason) == ("stopped", "crash")


KILLED = """
import asyncio, os, signal
from muniment.guest.launcher import _DESCRIPTORS
from muniment.guest.sandbox import Sandbox
async def main():
    async with Sandbox.open() as sandbox:
        print(sandbox._children._launcher.pid, flush=True)
        async with sandbox._children.child() as child:
            await asyncio.Event().wait()
asyncio.run(main())
"""


@on_linux
async def test_nothing_is_left_of_a_parent_that_was_killed() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, stdout=subprocess.PIPE)
    assert process.stdout
    launcher = int(await process.stdout.readline())
    group = Path(f"/proc/{launcher}/task/{launcher}/children")
    while not (running := [int(word) for word in group.read_text("ascii").split()]):
        await asyncio.sleep(0.01)
    process.kill()
    await process.wait()
    for each in (launcher, *running):
        while _is_there(each):
            await asyncio.sleep(0.01)


def _is_there(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


@on_linux
async def test_a_child_that_works_on_yields_to_the_others() -> None:
    async with Sandbox.open() as opened:
        compiled = await opened.compile_module(ENDLESS)
        wanted, seen = {os.nice(0), min(19, os.nice(0) + 10)}, set[int]()
        for _ in range(10):  # on a busy machine a child may end before its launcher or this test has looked at it
            endless = asyncio.create_task(opened.run_module(compiled, context=CONTEXT, inputs={}, answer=answered))
            while not endless.done():
                for each in _running(opened):
                    with suppress(ProcessLookupError):
                        seen.add(os.getpriority(os.PRIO_PROCESS, each))
                await asyncio.sleep(0.01)
            if seen >= wanted:
                break
        assert seen == wanted


async def test_the_launcher_ends_with_the_sandbox() -> None:
    async with Sandbox.open() as opened:
        process = opened._children._launcher
        assert process is not None
    assert process.returncode == 0


async def test_an_installation_without_the_libraries_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_LIBRARIES", ("wasmtime", "a_library_that_is_not_there"))
    with pytest.raises(SandboxMissing, match=r"a_library_that_is_not_there\. Type: pip install 'muniment\[relayer\]'"):
        async with Sandbox.open():
            pass


# Calls are dear to compile: these take more than ten seconds on a quick machine.
BOMB = f"""(module (memory (export "memory") 1) (func (export "main")) {f"(func {'(call 0)' * 60_000})" * 8})"""


@on_linux
async def test_a_compile_bomb_ends_with_its_time_and_leaves_nothing() -> None:
    async with Sandbox.open() as opened:
        opened._process_s = 0.5
        compiled = await opened.compile_module(bytes(wat2wasm(BOMB)))
        assert compiled.failure
        assert compiled.failure.reason == "time"
        await _none_running(opened)
        opened._process_s = limits.PROCESS_S
        assert (await run(opened, module("(drop (i32.const 79))"))).result == "nothing"


@on_linux
@pytest.mark.long
async def test_a_compile_bomb_costs_others_nothing_but_time(sandbox: Sandbox) -> None:
    bomb = asyncio.create_task(sandbox.compile_module(bytes(wat2wasm(BOMB))))
    for number in range(80, 90):
        assert (await run(sandbox, module(f"(drop (i32.const {number}))"))).result == "nothing"
    failure = (await bomb).failure
    assert failure is None or failure.reason in get_args(StopNote)
