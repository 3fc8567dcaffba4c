"""The root of all refusals: a code, a detail, and the wrong parts of the request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong part of a request, and the reason.

    `pointer` is a JSON pointer (RFC 6901) into the body; `parameter` the name of a path, query or header
    parameter. Exactly one of them is set.
    """

    detail: str
    pointer: str | None = None
    parameter: str | None = None

    def under(self, prefix: str) -> Fault:
        """The same fault with `prefix` before its pointer; the fault of a parameter is unchanged."""
        if self.parameter is not None:
            return self
        return replace(self, pointer=prefix + (self.pointer or ""))


class Refusal(Exception):
    """The root: a request is refused, for a reason that the client gets."""

    # A family has none. At a client, a code of a later release is here too.
    code: str = ""
    title: ClassVar[str] = ""
    # At a client, the answer that brought it: a `muniment.client.Reply`.
    answer: Any = None

    def __init__(
        self,
        detail: str,
        *,
        pointer: str | None = None,
        faults: Iterable[Fault] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Refuse for the reason `detail`.

        `pointer` is short for a single fault with the same detail. `facts` are further members of the
        problem document (RFC 9457 section 3.2), which help the client to find the error.
        """
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults) if pointer is None else (Fault(detail, pointer), *faults)
        self.facts: dict[str, Any] = dict(facts or {})

    def under(self, prefix: str) -> Self:
        """The same refusal with `prefix` before the pointer of each fault."""
        faults = [fault.under(prefix) for fault in self.faults] or [Fault(self.detail, prefix)]
        return type(self)(self.detail, faults=faults, facts=self.facts)
