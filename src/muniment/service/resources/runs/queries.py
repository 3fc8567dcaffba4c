"""The query of a listing of runs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.reasons import RunResult
from muniment.protocol.runs.types import TRIGGER_SIGS_MAX
from muniment.protocol.triggers.types import TimestampMs
from muniment.service.http.paging import LIST_ELEMENTS_PER_UNIT, PageQuery
from muniment.service.http.request import invalid_parameter


class RunQuery(PageQuery, frozen=True):
    """Which runs to list."""

    trigger_sig: Annotated[Signature, Meta(description="Only those of this trigger")] | None = None
    trigger_sigs: (
        Annotated[
            list[Signature],
            Meta(min_length=1, max_length=TRIGGER_SIGS_MAX, description="With `latest=1`: those of these triggers"),
        ]
        | None
    ) = None
    latest: Annotated[Literal["1"], Meta(description="Only the newest run of each trigger of `triggerSigs`")] | None = (
        None
    )
    relayer: Annotated[Address, Meta(description="Only those that this relayer recorded first")] | None = None
    result: RunResult | None = None
    created_after: Annotated[TimestampMs, Meta(description="Only later ones (exclusive)")] | None = None
    created_before: Annotated[TimestampMs, Meta(description="Only earlier ones (inclusive)")] | None = None

    # Each is put together from its record, its outputs and the records of operators.
    records_per_unit: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse a list of triggers without `latest`, and the reverse."""
        super().__post_init__()
        if (self.trigger_sigs is None) != (self.latest is None):
            raise invalid_parameter(
                "latest", "and triggerSigs come together; for all runs of one trigger send triggerSig"
            )
        if self.trigger_sig is not None and self.trigger_sigs is not None:
            raise invalid_parameter("triggerSig", "and triggerSigs cannot be given together")

    @property
    def units(self) -> int:
        """As of any page, and for the signatures that are looked up."""
        return super().units + len(self.trigger_sigs or ()) // LIST_ELEMENTS_PER_UNIT
