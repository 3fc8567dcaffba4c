"""The query of a listing of intents."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents.texts import ConfigSig, DeadlineBound
from muniment.protocol.intents.types import FIRST, SECOND, Generation, IntentStatus
from muniment.protocol.wire import TIMESTAMP_MS_MAX, UINT256_MAX
from muniment.service.http.paging import PageQuery
from muniment.service.http.request import invalid_parameter

_LISTED: Final[dict[str, Generation | None]] = {"1": FIRST, "2": SECOND, "all": None}
# The last type of operation that intents of generation 1 have.
_FIRST_OP_MAX: Final = 3

_TimestampMs = Annotated[int, Meta(ge=0, le=TIMESTAMP_MS_MAX, examples=[1_795_204_080_123])]
_Op = Annotated[
    int,
    Meta(
        ge=0, le=4, examples=[1],
        description="Of generation 1: 0 Swap, 1 Transfer, 2 EvmCall, 3 SvmCall; of generation 2, of any operation: "
        "0 Swap, 1 Transfer, 2 Call, 3 CrossChainSwap, 4 DynamicCall",
    ),
]  # fmt: skip


class IntentQuery(PageQuery, frozen=True):
    """Which intents to list."""

    user: Address | None = None
    settler: Address | None = None
    deadline_after: Annotated[DeadlineBound, Meta(description="Exclusive, Unix seconds in decimal")] | None = None
    deadline_before: Annotated[DeadlineBound, Meta(description="Inclusive, Unix seconds in decimal")] | None = None
    status: IntentStatus | None = None
    op: _Op | None = None
    config_sig: ConfigSig | None = None
    execution_hash: (
        Annotated[Bytes32, Meta(description="Only those that are outputs of this recorded run")] | None
    ) = None  # fmt: skip
    created_after: Annotated[_TimestampMs, Meta(description="Exclusive")] | None = None
    created_before: Annotated[_TimestampMs, Meta(description="Inclusive")] | None = None
    generation: Annotated[
        Literal["1", "2", "all"], Meta(description="1: intents with one operation; 2: with a list; all: both")
    ] = "1"

    # Each has lists of its own.
    records_per_unit: ClassVar[int] = 5

    def __post_init__(self) -> None:
        """Refuse a type of operation that no intent of generation 1 can have."""
        super().__post_init__()
        if self.generation == "1" and self.op is not None and self.op > _FIRST_OP_MAX:
            raise invalid_parameter("op", f"is at most {_FIRST_OP_MAX} without generation=2 or generation=all")

    @property
    def deadlines(self) -> range:
        """The deadlines that the query admits, Unix seconds."""
        after = -1 if self.deadline_after is None else int(self.deadline_after)
        before = UINT256_MAX if self.deadline_before is None else int(self.deadline_before)
        return range(after + 1, before + 1)

    @property
    def only_generation(self) -> Generation | None:
        """The generation to list; None for all."""
        return _LISTED[self.generation]
