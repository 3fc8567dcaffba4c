"""The shapes that exist in both forms: either one or the other."""

from __future__ import annotations

from typing import TypeAlias

from muniment.protocol.intents.types.first import Hashed, Intent, NewIntent
from muniment.protocol.intents.types.proposals import NewOperationsProposal, NewProposal, OperationsProposal, Proposal
from muniment.protocol.intents.types.second import HashedOperations, NewOperationsIntent, OperationsIntent

AnyHashed: TypeAlias = Hashed | HashedOperations
AnyNewIntent: TypeAlias = NewIntent | NewOperationsIntent
AnyNewProposal: TypeAlias = NewProposal | NewOperationsProposal
AnyIntent: TypeAlias = Intent | OperationsIntent
AnyProposal: TypeAlias = Proposal | OperationsProposal
