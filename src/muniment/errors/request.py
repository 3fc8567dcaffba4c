"""The request itself is wrong: its form, its size, or what it says."""

from __future__ import annotations

from muniment.errors.refusal import Refusal


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
    """A path, query or header parameter is out of its range or form, or one that is no list was given twice."""

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


class InvalidIntent(Invalid):
    """The intent, proposal, log or status breaks a rule: its size, its times, or what belongs together."""

    code = "invalid-intent"
    title = "Invalid intent"


class HashMismatch(Invalid):
    """The hash is not that of the intent's fields; the hash computed here is in the body."""

    code = "hash-mismatch"
    title = "Hash does not match"


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


class MalformedRequest(Invalid):
    """What came is no HTTP/1.1 request, or not one that can be understood in one way only; the connection ends."""

    code = "malformed-request"
    title = "Malformed request"


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


class TransferCodingNotSupported(Unanswerable):
    """The body has a transfer coding other than chunked."""

    code = "transfer-coding-not-supported"
    title = "Transfer coding not supported"


class HttpVersionNotSupported(Unanswerable):
    """The request is of a version of HTTP other than 1.1 and 1.0."""

    code = "http-version-not-supported"
    title = "HTTP version not supported"


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
