"""Every reason this software has to refuse a request, one class each.

A refusal carries a stable `code` (the class's), a `detail` for this occurrence and, where one part of
the request is to blame, `faults` that point at it. What status a refusal has over HTTP is not known here:
`muniment.http.problems` holds that table. The docstring of a class is the page that explains its code.

    Refusal
    ├── Invalid                 the request itself is wrong; sending it again unchanged cannot help
    │   ├── InvalidJson · InvalidBody · InvalidParameter · InvalidText
    │   ├── InvalidAddress · InvalidHex · InvalidSignature · InvalidAmount · InvalidCid
    │   ├── InvalidTimestamp · InvalidVersion · ConflictingCredentials
    │   ├── InvalidTypedData · InvalidConfig · SignatureMismatch · UnknownFunction
    │   └── InvalidUpload · InvalidManifest · InvalidWasm · VersionTaken
    ├── Unauthenticated         MissingCredential · InvalidToken · LoginFailed
    ├── Forbidden               InvalidApiKey · ForeignProfile · NotTheOwner
    ├── Absent                  UnknownPath · FunctionNotFound · TriggerNotFound · ContentNotFound
    ├── Conflicting             TriggerDeactivated · SignatureTaken
    ├── Unanswerable            MethodNotAllowed · NotAcceptable · NotCached · RangeNotSatisfiable
    │                           UnsupportedMediaType · RequestTimeout · TooManyLogins
    ├── TooLarge                BodyTooLarge · UriTooLong · HeadersTooLarge
    ├── Unavailable             DatabaseUnavailable · StorageUnavailable · DeadlineExceeded · NotReady
    └── Broken                  Integrity · InternalError
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

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
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse for the reason `detail`.

        `pointer` is short for a single fault with the same detail. `facts` are further members of the
        problem document (RFC 9457 section 3.2), for what the caller needs to find the error.
        """
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults) if pointer is None else (Fault(detail, pointer), *faults)
        self.facts = dict(facts or {})

    def under(self, prefix: str) -> Self:
        """The same refusal seen from further out: `prefix` goes before the pointer of each fault."""
        faults = [fault.under(prefix) for fault in self.faults] or [Fault(self.detail, prefix)]
        return type(self)(self.detail, faults=faults, facts=self.facts)


# --- the request itself is wrong ------------------------------------------------------------------


class Invalid(Refusal, ValueError):
    """The request is malformed or breaks a rule. A `ValueError`, so that decoders add the place."""


class InvalidJson(Invalid):
    """The body is not one JSON text (RFC 8259) in UTF-8, or an object in it has two members of one name."""

    code = "invalid-json"
    title = "Not acceptable as JSON"


class InvalidBody(Invalid):
    """The JSON body does not have the shape of this operation's request; `errors` points at the place."""

    code = "invalid-body"
    title = "Invalid request body"


class InvalidParameter(Invalid):
    """A path, query or header parameter is out of its range or form, or a query parameter was given twice."""

    code = "invalid-parameter"
    title = "Invalid parameter"


class InvalidText(Invalid):
    """A text is too short or too long, or holds a character that is not stored (U+0000, a lone surrogate)."""

    code = "invalid-text"
    title = "Invalid text"


class InvalidAddress(Invalid):
    """Not an EVM address: `0x` and 40 hex digits, in one letter case or with its EIP-55 checksum."""

    code = "invalid-address"
    title = "Invalid EVM address"


class InvalidHex(Invalid):
    """Not a hex string: `0x` and an even number of hex digits."""

    code = "invalid-hex"
    title = "Invalid hex string"


class InvalidSignature(Invalid):
    """Not a canonical ECDSA signature: 65 bytes r, s, v as hex with 0 < r < n, 0 < s ≤ n/2 and v 27 or 28 (0 or 1)."""

    code = "invalid-signature"
    title = "Invalid signature"


class InvalidAmount(Invalid):
    """Not an amount: a JSON string of decimal digits without sign or leading zero, at most 2^256 - 1."""

    code = "invalid-amount"
    title = "Invalid amount"


class InvalidCid(Invalid):
    """Not a content identifier of the kind that is due: a CIDv0, or a CIDv1 in lower-case base32."""

    code = "invalid-cid"
    title = "Invalid content identifier"


class InvalidTimestamp(Invalid):
    """Not a time in milliseconds since 1970, or a time that cannot be meant here, such as an end in the past."""

    code = "invalid-timestamp"
    title = "Invalid timestamp"


class InvalidVersion(Invalid):
    """Not a semantic version (semver.org 2.0.0) of at most 128 characters."""

    code = "invalid-version"
    title = "Invalid semantic version"


class ConflictingCredentials(Invalid):
    """`Authorization: Bearer` and `x-auth-token` are both present and differ, or one of them came twice."""

    code = "conflicting-credentials"
    title = "Conflicting credentials"


class InvalidTypedData(Invalid):
    """The EIP-712 types are not those of a trigger of this function, or the values do not fit them exactly."""

    code = "invalid-typed-data"
    title = "Invalid typed data"


class InvalidConfig(Invalid):
    """The trigger's config breaks a rule: its schedule, delta, dates, chain, contract or topics."""

    code = "invalid-config"
    title = "Invalid trigger config"


class SignatureMismatch(Invalid):
    """The signature is by another key, or over other data; the digest computed here is in the body."""

    code = "signature-mismatch"
    title = "Signature does not match"


class UnknownFunction(Invalid):
    """The function that the request names is not registered here."""

    code = "unknown-function"
    title = "Unknown function"


class InvalidUpload(Invalid):
    """The multipart form is malformed, or is not exactly manifest.json and function.wasm under the name `file`."""

    code = "invalid-upload"
    title = "Invalid upload"


class InvalidManifest(Invalid):
    """manifest.json is not acceptable; `errors` points into it."""

    code = "invalid-manifest"
    title = "Invalid manifest"


class InvalidWasm(Invalid):
    """function.wasm is not a core WebAssembly module that validates within this service's limits."""

    code = "invalid-wasm"
    title = "Invalid WebAssembly module"


class VersionTaken(Invalid):
    """The same creator has already deployed other bytes under this name and version."""

    code = "version-taken"
    title = "Version already deployed"


# --- who is asking --------------------------------------------------------------------------------


class Unauthenticated(Refusal):
    """Nobody in particular is asking, as far as can be told."""


class MissingCredential(Unauthenticated):
    """The operation needs a credential, and the request carries none."""

    code = "missing-credential"
    title = "Credential missing"


class InvalidToken(Unauthenticated):
    """The token is not one of this service's, has expired, or its secret was retired."""

    code = "invalid-token"
    title = "Invalid token"


class LoginFailed(Unauthenticated):
    """The signature is not by this address over a nonce that is still good. One answer for every cause."""

    code = "login-failed"
    title = "Login failed"


class Forbidden(Refusal):
    """It is known who asks, and it is not theirs."""


class InvalidApiKey(Forbidden):
    """The API key is not a current one of this service."""

    code = "invalid-api-key"
    title = "Invalid API key"


class ForeignProfile(Forbidden):
    """A profile is read and changed by its own address only."""

    code = "foreign-profile"
    title = "Not your profile"


class NotTheOwner(Forbidden):
    """The deactivation is not signed by the owner of every listed trigger over the posted list in its posted order."""

    code = "not-the-owner"
    title = "Not signed by the owner"


# --- it is not there ------------------------------------------------------------------------------


class Absent(Refusal):
    """What was asked for is not here."""


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


class ContentNotFound(Absent):
    """This registry does not hold the content, or the path leads to no file in it."""

    code = "content-not-found"
    title = "Content not found"


class Conflicting(Refusal):
    """The request contradicts a recorded fact."""


class TriggerDeactivated(Conflicting):
    """This consent was given before and has been deactivated, which is permanent."""

    code = "trigger-deactivated"
    title = "Trigger was deactivated"


class SignatureTaken(Conflicting):
    """These 65 bytes are registered already as the signature of another signer over other typed data."""

    code = "signature-taken"
    title = "Signature names another trigger"


# --- it cannot be answered in this form -----------------------------------------------------------


class Unanswerable(Refusal):
    """The request has a form that this service has no answer for."""


class MethodNotAllowed(Unanswerable):
    """The path exists, but not with this method; `Allow` lists those it has."""

    code = "method-not-allowed"
    title = "Method not allowed"


class NotAcceptable(Unanswerable):
    """None of the media types that the request accepts can be given."""

    code = "not-acceptable"
    title = "Not acceptable"


class NotCached(Unanswerable):
    """`Cache-Control: only-if-cached` was asked and the content is not here."""

    code = "not-cached"
    title = "Not held here"


class RangeNotSatisfiable(Unanswerable):
    """The requested range lies outside the content."""

    code = "range-not-satisfiable"
    title = "Range not satisfiable"


class UnsupportedMediaType(Unanswerable):
    """The body's media type, charset or content coding is not one that this operation takes."""

    code = "unsupported-media-type"
    title = "Unsupported media type"


class RequestTimeout(Unanswerable):
    """The body did not arrive in time."""

    code = "request-timeout"
    title = "Request timed out"


class TooManyLogins(Unanswerable):
    """Every nonce of this window has been used by its owner; `Retry-After` says when the next window opens."""

    code = "too-many-logins"
    title = "Too many logins"


class TooLarge(Refusal):
    """A limit on size stands in the way."""


class BodyTooLarge(TooLarge):
    """The body, or a file in it, is larger than this service takes."""

    code = "body-too-large"
    title = "Body too large"


class UriTooLong(TooLarge):
    """The request target is longer than this service takes."""

    code = "uri-too-long"
    title = "Request target too long"


class HeadersTooLarge(TooLarge):
    """The request's header fields are larger than this service takes."""

    code = "headers-too-large"
    title = "Header fields too large"


# --- it is our side -------------------------------------------------------------------------------


class Unavailable(Refusal):
    """Something this service depends on does not answer; nothing was half done, try again."""


class DatabaseUnavailable(Unavailable):
    """The database cannot be reached, is busy beyond its bound, or cannot write; nothing was stored."""

    code = "database-unavailable"
    title = "Database unavailable"


class StorageUnavailable(Unavailable):
    """The block store cannot write, for instance because the disk is full; nothing was stored."""

    code = "storage-unavailable"
    title = "Block storage unavailable"


class DeadlineExceeded(Unavailable):
    """Reading took longer than this service allows one request; ask for less, or by cursor."""

    code = "deadline-exceeded"
    title = "Deadline exceeded"


class NotReady(Unavailable):
    """This process is starting or stopping, or a dependency is not in the state it needs."""

    code = "not-ready"
    title = "Not ready"


class Broken(Refusal):
    """Something is wrong on this side that trying again will not mend."""


class Integrity(Broken):
    """Stored content no longer has the hash it is stored under, and is withheld. The operator has been told."""

    code = "integrity"
    title = "Stored content is damaged"


class InternalError(Broken):
    """An error of this software. It is in the log under the request id; nothing of it is shown."""

    code = "internal-error"
    title = "Internal error"
