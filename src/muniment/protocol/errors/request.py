"""Refusals of a request for its form, its size or its content."""

from __future__ import annotations

from muniment.protocol.errors.refusal import Refusal


class Invalid(Refusal, ValueError):
    """The request is malformed or breaks a rule. It is a `ValueError`, so that decoders add the place."""


class InvalidJson(Invalid):
    """The body is not one JSON text (RFC 8259) in UTF-8, or an object in it has two members of one name."""

    code = "invalid-json"
    title = "Not acceptable as JSON"


class InvalidBody(Invalid):
    """The JSON body does not have the shape of this operation's request; `errors` points at the place."""

    code = "invalid-body"
    title = "Invalid request body"


class InvalidParameter(Invalid):
    """A path, query or header parameter has a wrong value, or was sent twice although it takes one value."""

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
    """Not a content identifier of the expected kind: a CIDv0, or a CIDv1 in lower-case base32."""

    code = "invalid-cid"
    title = "Invalid content identifier"


class InvalidTimestamp(Invalid):
    """Not a time in milliseconds since 1970, or a time that makes no sense here, such as an end in the past."""

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
    """The signature is by another key, or over other data; the answer has the digest that this service computed."""

    code = "signature-mismatch"
    title = "Signature does not match"


class InvalidIntent(Invalid):
    """The intent, proposal, log or status breaks a rule about its size, its times, or members that must match."""

    code = "invalid-intent"
    title = "Invalid intent"


class HashMismatch(Invalid):
    """The hash does not match the intent's fields; the answer has the hash that this service computed."""

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
    """The bytes are not an HTTP/1.1 request, or are an ambiguous one; the service closes the connection."""

    code = "malformed-request"
    title = "Malformed request"


class Unanswerable(Refusal):
    """The service has no answer in the requested form."""


class MethodNotAllowed(Unanswerable):
    """The path exists, but not with this method; `Allow` lists the methods that it has."""

    code = "method-not-allowed"
    title = "Method not allowed"


class MethodNotImplemented(Unanswerable):
    """No operation has this method, and RFC 9110 does not name it; the service closes the connection."""

    code = "method-not-implemented"
    title = "Method not implemented"


class NotAcceptable(Unanswerable):
    """The service has the answer in none of the media types that the request accepts."""

    code = "not-acceptable"
    title = "Not acceptable"


class NotCached(Unanswerable):
    """The request has `Cache-Control: only-if-cached`, and this service does not hold the content."""

    code = "not-cached"
    title = "Not held here"


class RangeNotSatisfiable(Unanswerable):
    """The requested range is outside the content."""

    code = "range-not-satisfiable"
    title = "Range not satisfiable"


class UnsupportedMediaType(Unanswerable):
    """The body's media type, charset or content coding is not supported by this operation."""

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
    """The version of HTTP is neither 1.1 nor 1.0."""

    code = "http-version-not-supported"
    title = "HTTP version not supported"


class TooLarge(Refusal):
    """A part of the request is larger than its limit."""


class BodyTooLarge(TooLarge):
    """The body, or a file in it, is larger than the limit of this service."""

    code = "body-too-large"
    title = "Body too large"


class UriTooLong(TooLarge):
    """The request target is longer than the limit of this service."""

    code = "uri-too-long"
    title = "Request target too long"


class HeadersTooLarge(TooLarge):
    """The request's header fields are larger than the limit of this service."""

    code = "headers-too-large"
    title = "Header fields too large"
