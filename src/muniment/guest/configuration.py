"""How the engine is set up. Compiled code is for one setup and one version of wasmtime only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from muniment.guest.limits import MEMORY_BYTES, STACK_BYTES

_REFUSED_PROPOSALS: Final = (
    "threads", "tail_call", "multi_memory", "memory64", "relaxed_simd", "exceptions", "function_references", "gc",
    "wide_arithmetic", "custom_page_sizes", "stack_switching", "component_model",
)  # fmt: skip

# Attributes of `wasmtime.Config`.
CONFIGURATION: Final[Mapping[str, bool | int]] = MappingProxyType(
    {
        # WebAssembly 2.0, as `muniment.protocol.functions.wasm` validates it.
        "wasm_simd": True,
        "wasm_multi_value": True,
        "wasm_bulk_memory": True,
        "wasm_reference_types": True,
        **{f"wasm_{proposal}": False for proposal in _REFUSED_PROPOSALS},
        "consume_fuel": True,
        "epoch_interruption": True,
        "max_wasm_stack": STACK_BYTES,
        # Bits of NaN are the only result of WebAssembly that differs between machines.
        "cranelift_nan_canonicalization": True,
        # Usually a memory reserves 4 GiB of address space, and a signal tells that an access is outside of it.
        "memory_reservation": MEMORY_BYTES,
        "memory_reservation_for_growth": 0,
        "memory_guard_size": 0,
        "memory_init_cow": False,
        "signals_based_traps": False,
        # One child, one core.
        "parallel_compilation": False,
    }
)
