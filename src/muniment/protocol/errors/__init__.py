"""The reasons to refuse a request, one class each.

A refusal has a stable `code`, a `detail` for this occurrence, and `faults` that point at the wrong parts of the
request. `muniment.service.http.problems` maps refusals to HTTP statuses. The docstring of a class is the text of the
page `/errors/{code}`.

    Refusal
    ├── Invalid                 the request itself is wrong; sending it again unchanged cannot help
    │   ├── InvalidJson · InvalidBody · InvalidParameter · InvalidText
    │   ├── InvalidAddress · InvalidHex · InvalidSignature · InvalidAmount · InvalidCid
    │   ├── InvalidTimestamp · InvalidVersion · ConflictingCredentials
    │   ├── InvalidTypedData · InvalidConfig · SignatureMismatch · UnknownFunction
    │   ├── InvalidIntent · HashMismatch · MalformedRequest
    │   └── InvalidUpload · InvalidManifest · InvalidWasm · VersionTaken
    ├── Unauthenticated         MissingCredential · InvalidToken · LoginFailed
    ├── Forbidden               InvalidApiKey · InvalidOperatorKey · ForeignProfile · NotTheOwner
    │                           WebhooksForOperators
    ├── Absent                  UnknownPath · FunctionNotFound · TriggerNotFound · IntentNotFound
    │                           ProposalNotFound · DeactivationNotFound · ContentNotFound · CursorTooOld ·
    │                           NothingDeactivated · NotLoggedYet · LogPartNotFound
    │                           WebhookNotFound
    ├── Conflicting             TriggerDeactivated · SignatureTaken · StatusConflict · IntentDiffers · IntentFull
    │                           NonceTaken · TooManyWebhooks · WebhookNotConfirmed
    ├── Unanswerable            MethodNotAllowed · MethodNotImplemented · NotAcceptable · NotCached
    │                           RangeNotSatisfiable · UnsupportedMediaType · RequestTimeout
    │                           TransferCodingNotSupported · HttpVersionNotSupported
    ├── Limited                 RateLimited · TooManyLogins
    ├── TooLarge                BodyTooLarge · UriTooLong · HeadersTooLarge
    ├── Unavailable             DatabaseUnavailable · StorageUnavailable · DiskAlmostFull · ChainsUnavailable
    │                           DeadlineExceeded · Overloaded · ClockInDoubt · NotReady
    └── Broken                  Integrity · InternalError
"""

from __future__ import annotations

from muniment.protocol.errors.refusal import (
    Fault as Fault,
    Refusal as Refusal,
)
from muniment.protocol.errors.request import (
    BodyTooLarge as BodyTooLarge,
    ConflictingCredentials as ConflictingCredentials,
    HashMismatch as HashMismatch,
    HeadersTooLarge as HeadersTooLarge,
    HttpVersionNotSupported as HttpVersionNotSupported,
    Invalid as Invalid,
    InvalidAddress as InvalidAddress,
    InvalidAmount as InvalidAmount,
    InvalidBody as InvalidBody,
    InvalidCid as InvalidCid,
    InvalidConfig as InvalidConfig,
    InvalidHex as InvalidHex,
    InvalidIntent as InvalidIntent,
    InvalidJson as InvalidJson,
    InvalidManifest as InvalidManifest,
    InvalidParameter as InvalidParameter,
    InvalidSignature as InvalidSignature,
    InvalidText as InvalidText,
    InvalidTimestamp as InvalidTimestamp,
    InvalidTypedData as InvalidTypedData,
    InvalidUpload as InvalidUpload,
    InvalidVersion as InvalidVersion,
    InvalidWasm as InvalidWasm,
    MalformedRequest as MalformedRequest,
    MethodNotAllowed as MethodNotAllowed,
    MethodNotImplemented as MethodNotImplemented,
    NotAcceptable as NotAcceptable,
    NotCached as NotCached,
    RangeNotSatisfiable as RangeNotSatisfiable,
    RequestTimeout as RequestTimeout,
    SignatureMismatch as SignatureMismatch,
    TooLarge as TooLarge,
    TransferCodingNotSupported as TransferCodingNotSupported,
    Unanswerable as Unanswerable,
    UnknownFunction as UnknownFunction,
    UnsupportedMediaType as UnsupportedMediaType,
    UriTooLong as UriTooLong,
    VersionTaken as VersionTaken,
)
from muniment.protocol.errors.service import (
    Broken as Broken,
    ChainsUnavailable as ChainsUnavailable,
    ClockInDoubt as ClockInDoubt,
    DatabaseUnavailable as DatabaseUnavailable,
    DeadlineExceeded as DeadlineExceeded,
    DiskAlmostFull as DiskAlmostFull,
    Integrity as Integrity,
    InternalError as InternalError,
    NotReady as NotReady,
    Overloaded as Overloaded,
    StorageUnavailable as StorageUnavailable,
    TooManyUploads as TooManyUploads,
    Unavailable as Unavailable,
)
from muniment.protocol.errors.state import (
    Absent as Absent,
    Conflicting as Conflicting,
    ContentNotFound as ContentNotFound,
    CursorTooOld as CursorTooOld,
    DeactivationNotFound as DeactivationNotFound,
    Forbidden as Forbidden,
    ForeignProfile as ForeignProfile,
    FunctionNotFound as FunctionNotFound,
    IntentDiffers as IntentDiffers,
    IntentFull as IntentFull,
    IntentNotFound as IntentNotFound,
    InvalidApiKey as InvalidApiKey,
    InvalidOperatorKey as InvalidOperatorKey,
    InvalidToken as InvalidToken,
    Limited as Limited,
    LoginFailed as LoginFailed,
    LogPartNotFound as LogPartNotFound,
    MissingCredential as MissingCredential,
    NonceTaken as NonceTaken,
    NothingDeactivated as NothingDeactivated,
    NotLoggedYet as NotLoggedYet,
    NotTheOwner as NotTheOwner,
    ProposalNotFound as ProposalNotFound,
    RateLimited as RateLimited,
    SignatureTaken as SignatureTaken,
    StatusConflict as StatusConflict,
    TooManyLogins as TooManyLogins,
    TooManyWebhooks as TooManyWebhooks,
    TriggerDeactivated as TriggerDeactivated,
    TriggerNotFound as TriggerNotFound,
    Unauthenticated as Unauthenticated,
    UnknownPath as UnknownPath,
    WebhookNotConfirmed as WebhookNotConfirmed,
    WebhookNotFound as WebhookNotFound,
    WebhooksForOperators as WebhooksForOperators,
)
