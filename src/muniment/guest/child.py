"""The life of a child: it is confined, reads one job, does it, says what became of it, and ends."""

from __future__ import annotations

import msgspec
from wasmtime import Engine

from muniment.guest.confinement import filter_calls, restrict
from muniment.guest.engine import compile_wasm, new_engine
from muniment.guest.frames import Asked, Coded, CompileJob, Failed, FromChild, Given, Halt, Pipe, Ready, RunJob
from muniment.guest.limits import JOB_BYTES_MAX
from muniment.guest.outcomes import Stop
from muniment.guest.running import Stopwatch, run
from muniment.guest.types import Answer, Question


def serve_one(descriptor: int) -> None:
    """Do the one job that comes over the pipe `descriptor`, the only file that is open."""
    confinement = restrict()
    engine = new_engine()
    stopwatch = Stopwatch(engine)
    confinement = msgspec.structs.replace(confinement, seccomp=filter_calls())
    pipe = Pipe(descriptor, JOB_BYTES_MAX)
    pipe.send(Ready(confinement))
    pipe.send(_done(engine, stopwatch, pipe))


def _done(engine: Engine, stopwatch: Stopwatch, pipe: Pipe) -> FromChild:
    def ask(question: Question) -> Answer:
        pipe.send(Asked(question))
        reply = pipe.receive()
        if isinstance(reply, Given):
            return reply.answer
        if isinstance(reply, Halt):
            raise Stop(reply.reason, reply.text)
        raise Stop("crash", "the parent sent no answer")

    job = pipe.receive()
    if isinstance(job, RunJob):
        return run(engine, job, ask, stopwatch.start)
    if isinstance(job, CompileJob):
        stopwatch.start_compiler()
        return _compiled(engine, job)
    return Failed("crash", "the parent sent no job")


def _compiled(engine: Engine, job: CompileJob) -> FromChild:
    try:
        return Coded(*compile_wasm(engine, job.wasm))
    except Stop as stop:
        return Failed(stop.reason, stop.text)
    except MemoryError:
        return Failed("memory", "the process has no more memory")
    except Exception as error:  # noqa: BLE001 - the child ends after this, and a module has an outcome
        return Failed("crash", f"the compiler failed: {type(error).__name__}")
