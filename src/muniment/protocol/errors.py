"""The reasons to refuse a request, one class each, below the class of their family.

A refusal has a stable `code`, a `detail` for this occurrence, and `faults` that point at the wrong parts of the
request. `muniment.service.http.problems` maps refusals to HTTP statuses. The docstring of a class is the text of the
page `/errors/{code}`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

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


# Every refusal that has a code.
BY_CODE: Final[dict[str, type[Refusal]]] = {}


class Refusal(Exception):
    """The root: a request is refused, for a reason that the client gets."""

    # Empty for a family. At a client, a code of a later release is here too.
    code: str = ""
    title: ClassVar[str] = ""
    # At a client, the answer that brought it: a `muniment.client.Reply`.
    answer: Any = None

    def __init_subclass__(cls, *, code: str = "", title: str = "") -> None:
        """Give the class its code, if it is not a family."""
        if code:
            cls.code, cls.title = code, title
            BY_CODE[code] = cls

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


# Refusals of a request for its form, its size or its content.


class Invalid(Refusal, ValueError):
    """The request is malformed or breaks a rule. It is a `ValueError`, so that decoders add the place."""


class InvalidJson(Invalid, code="invalid-json", title="Not acceptable as JSON"):
    """The body is not one JSON text (RFC 8259) in UTF-8, or an object in it repeats a member name."""


class InvalidBody(Invalid, code="invalid-body", title="Invalid request body"):
    """The JSON body does not have the shape of this operation's request; `errors` points at the place."""


class InvalidParameter(Invalid, code="invalid-parameter", title="Invalid parameter"):
    """A path, query or header parameter has a wrong value, or came twice where one is taken."""


class InvalidText(Invalid, code="invalid-text", title="Invalid text"):
    """A text is too short or too long, or holds a character that is not stored (U+0000, a lone surrogate)."""


class InvalidAddress(Invalid, code="invalid-address", title="Invalid EVM address"):
    """Not an EVM address: `0x` and 40 hex digits, in one letter case or with its EIP-55 checksum."""


class InvalidHex(Invalid, code="invalid-hex", title="Invalid hex string"):
    """Not a hex string: `0x` and an even number of hex digits."""


class InvalidSignature(Invalid, code="invalid-signature", title="Invalid signature"):
    """Not a canonical ECDSA signature: 65 bytes r, s, v as hex with 0 < r < n, 0 < s ≤ n/2 and v 27 or 28 (0 or 1)."""


class InvalidAmount(Invalid, code="invalid-amount", title="Invalid amount"):
    """Not an amount: a JSON string of decimal digits without sign or leading zero, at most 2^256 - 1."""


class InvalidCid(Invalid, code="invalid-cid", title="Invalid content identifier"):
    """Not a content identifier of the expected kind: a CIDv0, or a CIDv1 in lower-case base32."""


class InvalidTimestamp(Invalid, code="invalid-timestamp", title="Invalid timestamp"):
    """Not a time in milliseconds since 1970, or one that makes no sense here, such as an end in the past."""


class InvalidVersion(Invalid, code="invalid-version", title="Invalid semantic version"):
    """Not a semantic version (semver.org 2.0.0) of at most 128 characters."""


class ConflictingCredentials(Invalid, code="conflicting-credentials", title="Conflicting credentials"):
    """`Authorization: Bearer` and `x-auth-token` differ, or one of them came twice."""


class InvalidTypedData(Invalid, code="invalid-typed-data", title="Invalid typed data"):
    """The EIP-712 types are not those of a trigger of this function, or the values do not fit them exactly."""


class InvalidConfig(Invalid, code="invalid-config", title="Invalid trigger config"):
    """The trigger's config breaks a rule: its schedule, delta, dates, chain, contract or topics."""


class SignatureMismatch(Invalid, code="signature-mismatch", title="Signature does not match"):
    """The signature is by another key, or over other data; the answer has the digest that this service computed."""


class InvalidIntent(Invalid, code="invalid-intent", title="Invalid intent"):
    """The intent, proposal, log or status breaks a rule about its size, its times, or members that must match."""


class HashMismatch(Invalid, code="hash-mismatch", title="Hash does not match"):
    """The hash does not match the intent's fields; the answer has the hash that this service computed."""


class InvalidRun(Invalid, code="invalid-execution", title="Invalid run"):
    """The run breaks a rule about its trigger, its time, its result, its outputs, or members that must match."""


class RunMismatch(Invalid, code="execution-mismatch", title="Hash of the run does not match"):
    """The hash or the evidence does not match the run's members; the answer has what this service computed."""


class UnknownFunction(Invalid, code="unknown-function", title="Unknown function"):
    """The function that the request names is not registered here."""


class InvalidUpload(Invalid, code="invalid-upload", title="Invalid upload"):
    """The multipart form is malformed, or is not exactly manifest.json and function.wasm under the name `file`."""


class InvalidManifest(Invalid, code="invalid-manifest", title="Invalid manifest"):
    """manifest.json is not acceptable; `errors` points into it."""


class InvalidWasm(Invalid, code="invalid-wasm", title="Invalid WebAssembly module"):
    """function.wasm is not a core WebAssembly module that validates within this service's limits."""


class VersionTaken(Invalid, code="version-taken", title="Version already deployed"):
    """The same creator has already deployed other bytes under this name and version."""


class MalformedRequest(Invalid, code="malformed-request", title="Malformed request"):
    """The bytes are not an HTTP/1.1 request, or are an ambiguous one; the service closes the connection."""


class Unanswerable(Refusal):
    """The service has no answer in the requested form."""


class MethodNotAllowed(Unanswerable, code="method-not-allowed", title="Method not allowed"):
    """The path exists, but not with this method; `Allow` lists the methods that it has."""


class MethodNotImplemented(Unanswerable, code="method-not-implemented", title="Method not implemented"):
    """RFC 9110 does not define this method; the service closes the connection."""


class NotAcceptable(Unanswerable, code="not-acceptable", title="Not acceptable"):
    """The request accepts no media type of the answer."""


class NotCached(Unanswerable, code="not-cached", title="Not held here"):
    """The request has `Cache-Control: only-if-cached`, and this service does not hold the content."""


class RangeNotSatisfiable(Unanswerable, code="range-not-satisfiable", title="Range not satisfiable"):
    """The requested range is outside the content."""


class UnsupportedMediaType(Unanswerable, code="unsupported-media-type", title="Unsupported media type"):
    """The body's media type, charset or content coding is not supported by this operation."""


class RequestTimeout(Unanswerable, code="request-timeout", title="Request timed out"):
    """The body did not arrive in time."""


class TransferCodingNotSupported(
    Unanswerable, code="transfer-coding-not-supported", title="Transfer coding not supported"
):
    """The body has a transfer coding other than chunked."""


class HttpVersionNotSupported(Unanswerable, code="http-version-not-supported", title="HTTP version not supported"):
    """The version of HTTP is neither 1.1 nor 1.0."""


class TooLarge(Refusal):
    """A part of the request is larger than its limit."""


class BodyTooLarge(TooLarge, code="body-too-large", title="Body too large"):
    """The body, or a file in it, is above the limit."""


class UriTooLong(TooLarge, code="uri-too-long", title="Request target too long"):
    """The request target is above the limit."""


class HeadersTooLarge(TooLarge, code="headers-too-large", title="Header fields too large"):
    """The request's header fields are above the limit."""


# Refusals of well-formed requests: the caller, the rate of requests, or the recorded data do not allow them.


class Unauthenticated(Refusal):
    """The request does not prove who its caller is."""


class MissingCredential(Unauthenticated, code="missing-credential", title="Credential missing"):
    """The operation needs a credential, and the request carries none."""


class InvalidToken(Unauthenticated, code="invalid-token", title="Invalid token"):
    """This service did not issue the token, or it has expired, or its secret was retired."""


class LoginFailed(Unauthenticated, code="login-failed", title="Login failed"):
    """The signature is not by this address over a valid nonce. Every cause has this one answer."""


class Forbidden(Refusal):
    """The caller is known, but has no right to this."""


class InvalidApiKey(Forbidden, code="invalid-api-key", title="Invalid API key"):
    """The API key is not a current key of this service."""


class InvalidOperatorKey(Forbidden, code="invalid-operator-key", title="Invalid operator key"):
    """This service does not know the operator key, or it was revoked."""


class ForeignProfile(Forbidden, code="foreign-profile", title="Not your profile"):
    """Only its own address may read or change a profile."""


class NotTheOwner(Forbidden, code="not-the-owner", title="Not signed by the owner"):
    """The deactivation is not signed by the owner of every listed trigger over the posted list in its posted order."""


class Absent(Refusal):
    """The requested record or content is not here."""


class UnknownPath(Absent, code="unknown-path", title="Unknown path"):
    """No operation of this service has this path."""


class FunctionNotFound(Absent, code="function-not-found", title="Function not found"):
    """No function is registered under this content identifier."""


class TriggerNotFound(Absent, code="trigger-not-found", title="Trigger not found"):
    """No trigger is registered under this signature."""


class DeactivationNotFound(Absent, code="deactivation-not-found", title="Deactivation not found"):
    """No deactivation is recorded under this signature."""


class NothingDeactivated(Absent, code="nothing-deactivated", title="Nothing was deactivated"):
    """No deactivation is recorded under this signature: one that ended no trigger has no record, and no proof."""


class NotLoggedYet(Absent, code="not-logged-yet", title="Not yet in the transparency log"):
    """The record is stored, but no signed checkpoint has it yet. `Retry-After` says when to ask again."""


class LogPartNotFound(Absent, code="log-part-not-found", title="Part of the log not found"):
    """The transparency log has no such part, or its signed tree does not reach that far yet."""


class IntentNotFound(Absent, code="intent-not-found", title="Intent not found"):
    """No intent is recorded under this hash."""


class RunNotFound(Absent, code="execution-not-found", title="Run not found"):
    """No run is recorded under this hash, or it was removed: a verdict replaces notes, and old runs are pruned."""


class ProposalNotFound(Absent, code="proposal-not-found", title="Proposal not found"):
    """The intent has no proposal with this hash."""


class WebhookNotFound(Absent, code="webhook-not-found", title="Webhook not found"):
    """The operator has no webhook with this id; another operator's webhook gets the same answer."""


class ContentNotFound(Absent, code="content-not-found", title="Content not found"):
    """This registry does not hold the content, or the path leads to no file in it."""


class CursorTooOld(Absent, code="cursor-too-old", title="Cursor is too old"):
    """Later events were pruned, or the registry was restored or moved since: start again without the cursor."""


class Conflicting(Refusal):
    """The request contradicts a recorded fact."""


class TriggerDeactivated(Conflicting, code="trigger-deactivated", title="Trigger was deactivated"):
    """This consent was given before and has been deactivated, which is permanent."""


class SignatureTaken(Conflicting, code="signature-taken", title="Signature names another trigger"):
    """These 65 bytes are registered already as the signature of another signer over other typed data.

    Change any member that is signed, such as the build part of the version (`1.0.0+2`), and sign again: that gives
    another signature.
    """


class StatusConflict(Conflicting, code="status-conflict", title="Status cannot move there"):
    """The recorded status cannot change to this one: a status only moves forward."""


class IntentDiffers(Conflicting, code="intent-differs", title="Recorded differently"):
    """The intent is recorded with another execution hash or other transactions; the first record is kept.

    Or the run that the intent names belongs to another trigger, or does not list the intent.
    """


class NonceTaken(Conflicting, code="nonce-taken", title="Nonce is taken"):
    """Another intent has the same trigger, settlement contract and nonce; the answer has its hash in `intent`.

    The settlement contract of generation 2 would execute both. The nonce is free once the deadline of that intent and
    the settlement grace have passed; never if that intent has succeeded.
    """


class IntentFull(Conflicting, code="intent-full", title="Intent is full"):
    """The intent has reached the limit of proposals or log lines."""


class TooManyVerdicts(Conflicting, code="too-many-verdicts", title="Too many verdicts"):
    """The operator has recorded as many verdicts on the cause of this run as the limit allows."""


class TooManyWebhooks(Conflicting, code="too-many-webhooks", title="Too many webhooks"):
    """The operator, or the registry, has as many webhooks as the limit allows: remove one first."""


class WebhookNotConfirmed(Conflicting, code="webhook-not-confirmed", title="Webhook is not confirmed"):
    """The webhook waits for an answer to its challenge, or for a new secret; only then can deliveries go on."""


class Limited(Refusal):
    """The same request is allowed later: `Retry-After` says when."""


class RateLimited(Limited, code="rate-limited", title="Too many requests"):
    """A rate limit is used up: `policy` names it, and `Retry-After` says when to send the request again."""


class TooManyLogins(Limited, code="too-many-logins", title="Too many logins"):
    """Every nonce of this window has been used by its owner; `Retry-After` says when the next window opens."""


# Refusals of requests that are correct, but that the service cannot answer.


class Unavailable(Refusal):
    """A part that this service depends on does not answer. Nothing was done in part; try again."""


class DatabaseUnavailable(Unavailable, code="database-unavailable", title="Database unavailable"):
    """The database cannot be reached, is busy, or cannot write.

    Nothing was stored, unless `detail` says that it was lost during the commit: then send the request again, or read.
    """


class ChainsUnavailable(Unavailable, code="chains-unavailable", title="Chains unavailable"):
    """None of the configured chains could be read; an empty answer would mean that the wallet has nothing."""


class StorageUnavailable(Unavailable, code="storage-unavailable", title="Block storage unavailable"):
    """The block store cannot be read or written, for instance because its disk is full; nothing was stored."""


class DiskAlmostFull(Unavailable, code="disk-almost-full", title="Disk almost full"):
    """A disk of the registry is almost full: what is left is kept for deactivations and log-ins. Nothing was stored.

    Uploads are refused first, then new triggers and the writes of operators. The operator must free space.
    """


class TooManyUploads(Unavailable, code="too-many-uploads", title="Too many uploads at once"):
    """Too many uploads of this creator wait for their check; send them one by one."""


class DeadlineExceeded(Unavailable, code="deadline-exceeded", title="Deadline exceeded"):
    """The read took too long: ask for fewer records, or use a cursor."""


class Overloaded(Unavailable, code="overloaded", title="Overloaded"):
    """This process is overloaded; nothing was begun. `Retry-After` says when to try again."""


class ClockInDoubt(Unavailable, code="clock-in-doubt", title="Clock in doubt"):
    """The clock stepped, or differs from the database's: nothing is registered until it is trusted again."""


class NotReady(Unavailable, code="not-ready", title="Not ready"):
    """This process is starting or stopping, or lacks what it needs: `detail` names it."""


class AnotherRevision(NotReady):
    """Another revision of this program made the database, and this one cannot use it."""


class Broken(Refusal):
    """The service has an error that another try cannot repair."""


class Integrity(Broken, code="integrity", title="Stored content is damaged"):
    """Stored content no longer matches its hash, and is withheld. The log has the error."""


class InternalError(Broken, code="internal-error", title="Internal error"):
    """An error of this software. The log has its details under the request id; the answer has none."""
