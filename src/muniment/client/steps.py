"""Steps that an operation of the client asks its driver for. Operations are generators of steps, without I/O.

    def get_trigger(sig: Signature) -> Flow[Trigger]:
        reply = yield Send("GET", f"/triggers/{sig}")
        return check_trigger(reply, sig)

A driver (`muniment.client.drivers`) does each step and sends its outcome into the generator, or throws its error.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """A request; its outcome is a `Reply`. Raises `Unreachable`."""

    method: str
    # The path below the URL of the service, with the query.
    target: str
    body: bytes | None = None
    # Credentials are here; `repr` leaves them out.
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    # Whether the request is idempotent.
    is_repeatable: bool = True
    # Whether a gzip answer is accepted. The content stays compressed: the caller unpacks it within a limit.
    takes_gzip: bool = False
    # The status of success; any other below 400 is not by a registry.
    done: int = 200


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SignText:
    """A signature of a text (EIP-191, `personal_sign`); its outcome is 0x and 130 hex digits."""

    text: str


@dataclass(frozen=True, slots=True)
class SignTyped:
    """A signature of typed data (EIP-712), as JSON with `domain`, `primaryType`, `types` and `message`."""

    data: Mapping[str, Any]


Step = Send | Sleep | SignText | SignTyped
Flow = Generator[Step, Any, T]
