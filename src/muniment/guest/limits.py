"""The limits of a run, and where each comes from. Counted ones give the same verdict on every machine."""

from __future__ import annotations

from typing import Final

from muniment.protocol.runs.texts import (
    LOG_TEXT_MAX,
    OUTPUTS_MAX,
    REASON_TEXT_MAX,
    RUN_BYTES_MAX,
    RUN_LOGS_BYTES_MAX,
    RUN_LOGS_MAX,
)

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB

# What a registry takes as function.wasm unless its setting `wasm_bytes_max` says otherwise.
MODULE_BYTES_MAX: Final = 16 * _MIB
# Compilers need time and memory that grow with the code, and with a function more than linearly. Functions that are
# compiled from AssemblyScript have 20 to 200 KiB of code, their longest body a few KiB.
CODE_BYTES_MAX: Final = _MIB
BODY_BYTES_MAX: Final = 128 * _KIB
# The library of the engine reads them one by one, each from the first on. Honest functions have some ten.
EXPORTS_MAX: Final = 1_000

# Units of the engine, about one for each instruction, or byte of a bulk operation. Functions that copy much need most:
# of the field's examples 8 to 484 million, and 565 million with 300 balances, in a tenth of a CPU second.
FUEL: Final = 10**9
# CPU seconds of the child from the instantiation on. Fuel ends a run before, on any machine, or its verdict would
# depend on the machine: the slowest unit is a load that waits for memory and for its page, 160 ns where other processes
# use the memory too, so that all fuel takes 160 s. Other slow ones are memory.fill of no byte (32 ns), memory.grow that
# fails (19 ns) and ref.func (13 ns); an empty loop takes 1 ns.
GUEST_CPU_S: Final = 600.0
# 32 children have at most 2 GiB together. Honest functions hold a few texts.
MEMORY_BYTES: Final = 64 * _MIB
# Tables of AssemblyScript have one entry for each function that is passed as a value.
TABLE_ENTRIES: Final = 10_000
# The engine's own default.
STACK_BYTES: Final = 512 * _KIB

# Calls of imports but logs: four for each query, to encode, ask, decode and hash.
HOST_CALLS_MAX: Final = 256
# Each may be a request to a node.
QUERIES_MAX: Final = 64
# JSON texts of all answers, UTF-8: half of what the record of a run may have.
ANSWER_BYTES_MAX: Final = RUN_BYTES_MAX // 2
INTENTS_MAX: Final = OUTPUTS_MAX
# One intent as the guest sends it, UTF-8: half of what a registry takes as an intent, since encoding makes it longer.
INTENT_BYTES_MAX: Final = 128 * _KIB
# What a record takes: lines, characters of one, UTF-8 bytes of all.
LOG_LINES_MAX: Final = RUN_LOGS_MAX
LOG_LINE_LENGTH_MAX: Final = LOG_TEXT_MAX
LOG_BYTES_MAX: Final = RUN_LOGS_BYTES_MAX
# A line too many costs nothing but the call, some three microseconds.
LOG_CALLS_MAX: Final = 10_000
# UTF-16 units of a text that an import reads or returns: room for the largest intent or answer twice.
TEXT_LENGTH_MAX: Final = 256 * _KIB
# Characters of the message that a run ends with: what a record takes.
REASON_LENGTH_MAX: Final = REASON_TEXT_MAX

# Types of Solidity nest three deep in practice. Pointers may share what they point to, so the cost of decoding is not
# bounded by the size of the data: steps are counted, over the whole run. A step is a word that is read, a value that
# is written, or a tenth of a character of a type, and takes two microseconds.
ABI_DEPTH_MAX: Final = 8
ABI_TYPE_LENGTH_MAX: Final = 2_000
ABI_STEPS_MAX: Final = 250_000

# The worst module within the limits of code takes 5 s of CPU and 600 MB to compile; a run has 64 MiB.
COMPILER_CPU_S: Final = 10.0
# The child as a process. Its CPU time only ends what these limits did not; its time, without that of answers, only a
# child that hangs, however busy the machine is.
PROCESS_CPU_S: Final = 660
PROCESS_S: Final = 3_600.0
PROCESS_MEMORY_BYTES: Final = 1024 * _MIB
# A child has one, its pipe.
PROCESS_FILES: Final = 8

# Frames of the pipe: a job with its compiled code and inputs; a question; a result with 32 intents and its logs.
JOB_BYTES_MAX: Final = 128 * _MIB
# A question comes from a text, of which a UTF-16 unit has at most three bytes of UTF-8.
QUESTION_BYTES_MAX: Final = 4 * TEXT_LENGTH_MAX
RESULT_BYTES_MAX: Final = INTENTS_MAX * INTENT_BYTES_MAX + 4 * LOG_BYTES_MAX
COMPILED_BYTES_MAX: Final = 96 * _MIB

# Children at once; each has at most `PROCESS_MEMORY_BYTES`, and about 30 MB of its own.
CHILDREN_MAX: Final = 32
# Compiled modules that the parent keeps, 300 kB for a usual one.
COMPILED_KEPT_BYTES: Final = 128 * _MIB
