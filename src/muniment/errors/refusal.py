"""What all refusals share: a code, a detail, and the parts of the request that are to blame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Fault:
    """One part of a request that is to blame, and why.

    `pointer` is a JSON pointer (RFC 6901) into the body; `parameter` the name of a path, query or header
    parameter. Exactly one of them is set.
    """

    detail: str
    pointer: str | None = None
    parameter: str | None = None

    def under(self, prefix: str) -> Fault:
        """The same fault seen from further out: `prefix` goes before its pointer; a parameter stays one."""
        if self.parameter is not None:
            return self
        return replace(self, pointer=prefix + (self.pointer or ""))


class Refusal(Exception):
    """The root: something was asked that is not done, for a reason that the caller is told."""

    code: ClassVar[str]
    title: ClassVar[str]

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
        problem document (RFC 9457 section 3.2), for what the caller needs to find the error.
        """
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults) if pointer is None else (Fault(detail, pointer), *faults)
        self.facts: dict[str, Any] = dict(facts or {})

    def under(self, prefix: str) -> Self:
        """The same refusal seen from further out: `prefix` goes before the pointer of each fault."""
        faults = [fault.under(prefix) for fault in self.faults] or [Fault(self.detail, prefix)]
        return type(self)(self.detail, faults=faults, facts=self.facts)
