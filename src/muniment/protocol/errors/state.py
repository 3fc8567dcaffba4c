"""Refusals of well-formed requests: the caller, the rate of requests, or the recorded data do not allow them."""

from __future__ import annotations

from muniment.protocol.errors.refusal import Refusal


class Unauthenticated(Refusal):
    """The request does not prove who its caller is."""


class MissingCredential(Unauthenticated):
    """The operation needs a credential, and the request carries none."""

    code = "missing-credential"
    title = "Credential missing"


class InvalidToken(Unauthenticated):
    """This service did not issue the token, or the token has expired, or its secret was retired."""

    code = "invalid-token"
    title = "Invalid token"


class LoginFailed(Unauthenticated):
    """The signature is not by this address over a nonce that is still good. One answer for every cause."""

    code = "login-failed"
    title = "Login failed"


class Forbidden(Refusal):
    """The caller is known, but has no right to this."""


class InvalidApiKey(Forbidden):
    """The API key is not a current key of this service."""

    code = "invalid-api-key"
    title = "Invalid API key"


class InvalidOperatorKey(Forbidden):
    """This service does not know the operator key, or it was revoked."""

    code = "invalid-operator-key"
    title = "Invalid operator key"


class ForeignProfile(Forbidden):
    """Only the address of a profile may read and change it."""

    code = "foreign-profile"
    title = "Not your profile"


class NotTheOwner(Forbidden):
    """The deactivation is not signed by the owner of every listed trigger over the posted list in its posted order."""

    code = "not-the-owner"
    title = "Not signed by the owner"


class WebhooksForOperators(Forbidden):
    """On this service only operators may have webhooks; a wallet reads the change feed itself."""

    code = "webhooks-for-operators"
    title = "Webhooks are for operators"


class Absent(Refusal):
    """The requested record or content is not here."""


class UnknownPath(Absent):
    """No operation of this service has this path."""

    code = "unknown-path"
    title = "Unknown path"


class FunctionNotFound(Absent):
    """No function is registered under this content identifier."""

    code = "function-not-found"
    title = "Function not found"


class TriggerNotFound(Absent):
    """No trigger is registered under this signature."""

    code = "trigger-not-found"
    title = "Trigger not found"


class DeactivationNotFound(Absent):
    """No deactivation is recorded under this signature."""

    code = "deactivation-not-found"
    title = "Deactivation not found"


class NothingDeactivated(Absent):
    """No deactivation is recorded under this signature: one that ended no trigger has no record, and no proof."""

    code = "nothing-deactivated"
    title = "Nothing was deactivated"


class NotLoggedYet(Absent):
    """The record is stored, but no signed checkpoint has it yet. `Retry-After` says when to ask again."""

    code = "not-logged-yet"
    title = "Not yet in the transparency log"


class LogPartNotFound(Absent):
    """The transparency log has no such part, or its signed tree does not reach so far yet."""

    code = "log-part-not-found"
    title = "Part of the log not found"


class IntentNotFound(Absent):
    """No intent is recorded under this hash."""

    code = "intent-not-found"
    title = "Intent not found"


class ProposalNotFound(Absent):
    """The intent has no proposal with this hash."""

    code = "proposal-not-found"
    title = "Proposal not found"


class WebhookNotFound(Absent):
    """The caller has no webhook with this id; another caller's webhook gets the same answer."""

    code = "webhook-not-found"
    title = "Webhook not found"


class ContentNotFound(Absent):
    """This registry does not hold the content, or the path leads to no file in it."""

    code = "content-not-found"
    title = "Content not found"


class CursorTooOld(Absent):
    """The registry was restored or moved since it issued the cursor: start again without the cursor."""

    code = "cursor-too-old"
    title = "Cursor is too old"


class Conflicting(Refusal):
    """The request contradicts a recorded fact."""


class TriggerDeactivated(Conflicting):
    """This consent was given before and has been deactivated, which is permanent."""

    code = "trigger-deactivated"
    title = "Trigger was deactivated"


class SignatureTaken(Conflicting):
    """These 65 bytes are registered already as the signature of another signer over other typed data.

    Change any member that is signed, such as the build part of the version (`1.0.0+2`), and sign again: that gives
    another signature.
    """

    code = "signature-taken"
    title = "Signature names another trigger"


class StatusConflict(Conflicting):
    """The recorded status cannot change to this one: a status only moves forward."""

    code = "status-conflict"
    title = "Status cannot move there"


class IntentDiffers(Conflicting):
    """The intent is recorded with another execution hash or other transactions; the first record is kept."""

    code = "intent-differs"
    title = "Recorded otherwise"


class NonceTaken(Conflicting):
    """Another intent has the same trigger, settlement contract and nonce; the answer has its hash in `intent`.

    The settlement contract of the second form would execute both. The nonce is free once the deadline of the other one
    and the settlement grace have passed, unless the other one has succeeded: then never.
    """

    code = "nonce-taken"
    title = "Nonce is taken"


class IntentFull(Conflicting):
    """The intent has as many proposals, or logs, as the limit allows."""

    code = "intent-full"
    title = "Intent is full"


class TooManyWebhooks(Conflicting):
    """The caller, or the registry, has as many webhooks as the limit allows: remove one first."""

    code = "too-many-webhooks"
    title = "Too many webhooks"


class WebhookNotConfirmed(Conflicting):
    """The webhook waits for an answer to its challenge, or for new keys; only then can deliveries go on."""

    code = "webhook-not-confirmed"
    title = "Webhook is not confirmed"


class Limited(Refusal):
    """The same request is allowed later: `Retry-After` says when."""


class RateLimited(Limited):
    """A rate limit is used up: `policy` names it, and `Retry-After` says when to send the same request again."""

    code = "rate-limited"
    title = "Too many requests"


class TooManyLogins(Limited):
    """Every nonce of this window has been used by its owner; `Retry-After` says when the next window opens."""

    code = "too-many-logins"
    title = "Too many logins"
