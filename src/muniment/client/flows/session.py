"""State that the operations of one client share: identity, trust settings, caches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx2

from muniment.client.answers import check_answered, decode
from muniment.client.failures import Forged
from muniment.client.retrying import Retry
from muniment.client.steps import Flow, Send
from muniment.client.words import Words
from muniment.protocol.evm.address import Address
from muniment.protocol.ipfs.cid import Cid

if TYPE_CHECKING:
    from muniment.client.failures import Reply
    from muniment.client.signers import Signer
    from muniment.protocol.functions.rules import Manifest
    from muniment.protocol.log.notes import VerifierKey

T = TypeVar("T")
# Manifests that are kept, of some kilobytes each. A manifest never changes: its CID is its hash.
MANIFESTS_KEPT: Final = 1_000
# Records that were proved in a log, of some two hundred bytes each.
PROVED_KEPT: Final = 10_000
# A value that a header field can hold (RFC 9110 section 5.5).
CREDENTIAL: Final = re.compile("[!-~]([ -~]*[!-~])?")
# The longest wait that the change feed offers.
_WAIT_S_MAX: Final = 30
_ANSWER_S: Final = 5
JSON: Final = {"accept": "application/json"}
POSTED: Final = {**JSON, "content-type": "application/json"}
Parameters = Mapping[str, object]


class SettlementDomain(NamedTuple):
    """A chain, and the settlement contract on it."""

    chain_id: int
    settler: Address


@dataclass(slots=True)
class Session:
    """The state of a client. `protocol` is the protocol name of the registry, which no answer can change.

    With `verifies`, every answer that can be proved is proved. `settlers` are the settlement contracts under whose
    domains the signatures of proposals are checked.
    """

    protocol: str = "Mimic"
    verifies: bool = True
    settlers: tuple[SettlementDomain, ...] = ()
    # The URL of the registry. A login for another URL is not signed.
    url: str = ""
    retry: Retry = field(default_factory=Retry)
    # The address of the signer; None without one.
    address: Address | None = None
    # Whether there is a signer: the address may be known without one.
    can_sign: bool = True
    api_key: str | None = field(default=None, repr=False)
    operator_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    # Whether a log-in may sign a bare nonce of another machine, which could be that of another registry.
    bare_nonce: bool = False
    # The registries that have given a text with their name.
    words: Words = field(default_factory=Words, repr=False)
    # Lifetime in seconds of the tokens of this client; None: default of the service.
    lifetime_s: int | None = None
    # Seconds that a request to the change feed waits for an event.
    wait_s: int = 20
    # The keys of logs by their origin, as they were seen first.
    log_keys: dict[str, tuple[VerifierKey, VerifierKey]] = field(default_factory=dict[str, Any], repr=False)
    # Records with two entries in a log, and the place of each proved record: origin and index.
    logged_twice: set[bytes] = field(default_factory=set[bytes], repr=False)
    proved: dict[bytes, tuple[str, int]] = field(default_factory=dict[bytes, tuple[str, int]], repr=False)
    manifests: dict[str, Manifest] = field(default_factory=dict[str, "Manifest"], repr=False)

    def signing_address(self) -> Address:
        """The address of the signer. Raises `ValueError` without one."""
        if self.address is None:
            raise ValueError("this needs a signature: give the client a signer")
        return self.address

    def operator_headers(self) -> dict[str, str]:
        """The credential of an operator. Raises `ValueError` without one."""
        if self.operator_key is None:
            raise ValueError("operators write intents and runs: give the client an operator_key")
        return {"x-operator-key": self.operator_key}

    def keep_manifest(self, cid: str, manifest: Manifest) -> None:
        """Keep a manifest that was proved."""
        while len(self.manifests) >= MANIFESTS_KEPT:
            self.manifests.pop(next(iter(self.manifests)), None)
        self.manifests[cid] = manifest

    def keep_proved(self, key: bytes, origin: str, index: int) -> None:
        """Keep where a record was proved."""
        while len(self.proved) >= PROVED_KEPT:
            self.proved.pop(next(iter(self.proved)), None)
        self.proved[key] = (origin, index)

    def answered(self, send: Send) -> Flow[Reply]:
        """The answer to `send`. Raises the refusal of the service, `Unreachable`, or `NotARegistry`."""
        return check_answered((yield from self.retry.reply(send)), send.done)

    def read(self, target: str, kind: type[T], headers: Mapping[str, str] = JSON) -> Flow[T]:
        """The record at `target`, as a `kind`."""
        return decode((yield from self.answered(Send("GET", target, headers=headers))), kind)


def session_of(  # noqa: PLR0913 - settings, by name
    url: str,
    *,
    signer: Signer | None,
    address: str | None,
    api_key: str | None,
    operator_key: str | None,
    token: str | None,
    protocol: str,
    chains: Mapping[int, str],
    verify: bool,
    timeout_s: float,
    retry: Retry,
    bare_nonce: bool,
    words: Words | None,
) -> Session:
    """The state of a client of the registry at `url`. `chains` maps ids of chains to settlement contracts.

    Raises `InvalidAddress`, and `ValueError` for a credential that no header can hold.
    """
    for name, credential in ("api_key", api_key), ("operator_key", operator_key), ("token", token):
        if credential and CREDENTIAL.fullmatch(credential) is None:
            # The text does not show the credential.
            raise ValueError(
                f"the {name} has a line break, a space at an end, or another character that HTTP headers do not allow"
            )
    return Session(
        protocol=protocol,
        verifies=verify,
        can_sign=signer is not None,
        settlers=tuple(SettlementDomain(chain, Address.parse(settler)) for chain, settler in chains.items()),
        url=url,
        retry=retry,
        address=None if (named := signer.address if signer else address) is None else Address.parse(named),
        api_key=api_key,
        operator_key=operator_key,
        token=token,
        bare_nonce=bare_nonce,
        words=words or Words(),
        # The answer of the feed arrives shortly after its wait.
        wait_s=max(0, min(_WAIT_S_MAX, int(timeout_s) - _ANSWER_S)),
    )


def checked_url(url: str) -> str:
    """`url` without a slash at its end. Raises `ValueError` for a malformed URL."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("remove the user and the password from the URL: it is shown and stored")
    try:
        httpx2.URL(url)
        is_whole = parts.scheme in {"http", "https"} and parts.hostname
    except httpx2.InvalidURL:
        is_whole = False
    if not is_whole or parts.query or parts.fragment:
        raise ValueError("the URL of a service has the form http://host or https://host")
    return url.rstrip("/")


def target(path: str, *parts: str, **parameters: object) -> str:
    """The target of a request: `path` with its `{}` filled, and the parameters that are not None.

    A list is one parameter with commas, a boolean `true` or `false`.
    """
    filled = path.format(*(quote(part, safe="") for part in parts))
    query = urlencode({name: _text(value) for name, value in parameters.items() if value is not None}, safe=",")
    return f"{filled}?{query}" if query else filled


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(str(each) for each in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any value has a text
    return str(value)


def without_none(filters: Mapping[str, object]) -> dict[str, object]:
    """The filters that were given."""
    return {name: value for name, value in filters.items() if value is not None}


def check_same(given: object, asked: object, what: str) -> None:
    """Raise `Forged` if `given` differs from `asked`. Both spellings of a CID are equal."""
    if isinstance(given, Cid) and isinstance(asked, Cid):
        given, asked = given.digest, asked.digest
    if given != asked:
        raise Forged(f"asked for the {what} {asked}, but got {given}")
