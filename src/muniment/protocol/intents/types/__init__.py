"""The shapes of intents: both forms of an intent, the parts that they share, and texts.

Intents of the first form (`first`) have one operation; those of the second (`second`) have a list of operations.
"""

from __future__ import annotations

from muniment.protocol.intents.types.first import (
    Hashed as Hashed,
    Intent as Intent,
    NewIntent as NewIntent,
    Op as Op,
)
from muniment.protocol.intents.types.forms import (
    AnyHashed as AnyHashed,
    AnyIntent as AnyIntent,
    AnyNewIntent as AnyNewIntent,
    AnyNewProposal as AnyNewProposal,
    AnyProposal as AnyProposal,
)
from muniment.protocol.intents.types.parts import (
    LIST_MAX as LIST_MAX,
    LOGS_MAX as LOGS_MAX,
    NEWEST_SHOWN as NEWEST_SHOWN,
    PROPOSALS_MAX as PROPOSALS_MAX,
    IntentEvent as IntentEvent,
    IntentStatus as IntentStatus,
    Log as Log,
    LogLevel as LogLevel,
    MaxFee as MaxFee,
    Move as Move,
    NewLog as NewLog,
    ProposalStatus as ProposalStatus,
    Signers as Signers,
    StatusChange as StatusChange,
    Verified as Verified,
)
from muniment.protocol.intents.types.proposals import (
    NEW_PROPOSALS as NEW_PROPOSALS,
    OPERATIONS_MAX as OPERATIONS_MAX,
    Datas as Datas,
    NewOperationsProposal as NewOperationsProposal,
    NewProposal as NewProposal,
    OperationsProposal as OperationsProposal,
    Proposal as Proposal,
)
from muniment.protocol.intents.types.second import (
    HashedOperations as HashedOperations,
    NewOperationsIntent as NewOperationsIntent,
    Operation as Operation,
    OperationsIntent as OperationsIntent,
    OpType as OpType,
)
from muniment.protocol.intents.types.stored import record_of as record_of
from muniment.protocol.intents.types.texts import (
    LOG_BYTES_MAX as LOG_BYTES_MAX,
    ConfigSig as ConfigSig,
    DeadlineBound as DeadlineBound,
    LogId as LogId,
    LogText as LogText,
    ShortText as ShortText,
    TriggerSig as TriggerSig,
)
