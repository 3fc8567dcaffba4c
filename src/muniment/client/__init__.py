"""A client that verifies the signatures, CIDs and hashes of a registry instead of trusting it.

The names in this module are the public API. Its submodules are internal, and may change in any release.
"""

from __future__ import annotations

from muniment.client.aio import AsyncRegistry as AsyncRegistry
from muniment.client.answers import Page as Page
from muniment.client.checkpoint import Checkpoint as Checkpoint
from muniment.client.failures import (
    CannotSign as CannotSign,
    Forged as Forged,
    NotARegistry as NotARegistry,
    NotSignedBy as NotSignedBy,
    NotUnderName as NotUnderName,
    Reply as Reply,
    Unreachable as Unreachable,
)
from muniment.client.flows.following import Event as Event
from muniment.client.flows.functions import Bundle as Bundle
from muniment.client.flows.log.checkpoints import Forked as Forked, Late as Late, NotBegun as NotBegun
from muniment.client.flows.log.following import (
    NotAnnounced as NotAnnounced,
    Progress as Progress,
    Rules as Rules,
    Seen as Seen,
)
from muniment.client.flows.log.proving import Logged as Logged
from muniment.client.flows.login import Balance as Balance
from muniment.client.flows.triggers import SignedTrigger as SignedTrigger, TriggerDraft as TriggerDraft
from muniment.client.offers import sign_proposal as sign_proposal
from muniment.client.profiles import Profile as Profile, Profiles as Profiles
from muniment.client.retrying import Retry as Retry
from muniment.client.rows import rows as rows
from muniment.client.signers import AccountSigner as AccountSigner, KeySigner as KeySigner, Signer as Signer
from muniment.client.signing.specs import signer_of as signer_of
from muniment.client.sync import Registry as Registry
from muniment.client.words import Words as Words
from muniment.client.writer import Writer as Writer
from muniment.protocol.errors import (
    CursorTooOld as CursorTooOld,
    FunctionNotFound as FunctionNotFound,
    IntentNotFound as IntentNotFound,
    NotLoggedYet as NotLoggedYet,
    Refusal as Refusal,
    StatusConflict as StatusConflict,
    TriggerNotFound as TriggerNotFound,
)
