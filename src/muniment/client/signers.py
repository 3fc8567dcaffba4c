"""Signers: private keys in memory, and accounts of the eth-account library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from muniment.client.failures import NotSignedBy
from muniment.client.steps import Flow, SignText, SignTyped
from muniment.protocol.errors import InvalidSignature, InvalidTypedData
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.signature import Signature, address_of_key, is_by, personal_digest, sign
from muniment.protocol.evm.typed_data import Struct, compile_types
from muniment.protocol.evm.words import WORDS, Misfit
from muniment.text_files import read_text

# The members of a domain in the order of EIP-712, "Definition of domainSeparator".
_DOMAIN = {
    "name": "string", "version": "string", "chainId": "uint256", "verifyingContract": "address", "salt": "bytes32",
}  # fmt: skip
_KEY_BYTES = 32


class Signer(Protocol):
    """A wallet. Signatures are 0x and 130 hex digits."""

    @property
    def address(self) -> Address:
        """The address of its key."""
        ...

    def sign_text(self, text: str) -> str:
        """The signature of `personal_sign` (EIP-191)."""
        ...

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        """The signature of `eth_signTypedData_v4` (EIP-712); `types` of `data` lack `EIP712Domain`."""
        ...


class KeySigner:
    """A signer with a private key in memory."""

    def __init__(self, key: bytes) -> None:
        """`key` has 32 bytes. Raises `ValueError`."""
        if len(key) != _KEY_BYTES:
            raise ValueError(f"a private key has {_KEY_BYTES} bytes")
        self._key = key
        self.address: Address = address_of_key(key)

    @classmethod
    def from_environment(cls, name: str = "MUNIMENT_PRIVATE_KEY") -> Self:
        """The key in the variable `name`, or in the file that `NAME_FILE` names: 64 hex digits. Raises `ValueError`."""
        text = os.environ.get(name) or ""
        if file := os.environ.get(f"{name}_FILE"):
            text = read_text(Path(file))
        digits = text.strip().removeprefix("0x")
        try:
            key = bytes.fromhex(digits)
        except ValueError:
            key = b""
        if len(digits) != 2 * _KEY_BYTES or len(key) != _KEY_BYTES:
            raise ValueError(f"{name} or {name}_FILE must hold 64 hex digits") from None
        return cls(key)

    def sign_text(self, text: str) -> str:
        """As `Signer`."""
        return sign(personal_digest(text.encode()), self._key)

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        """As `Signer`."""
        return sign(typed_digest(data), self._key)

    def __repr__(self) -> str:
        return f"KeySigner({self.address})"


class _Signed(Protocol):
    @property
    def signature(self) -> bytes: ...


class _Account(Protocol):
    """The members of eth-account's `LocalAccount` that are used here."""

    @property
    def address(self) -> str: ...

    def unsafe_sign_hash(self, message_hash: bytes) -> _Signed: ...


class AccountSigner:
    """A signer with an account of eth-account (`LocalAccount`)."""

    def __init__(self, account: _Account) -> None:
        """Sign with `account`."""
        self._account = account
        self.address: Address = Address.parse(account.address)

    def sign_text(self, text: str) -> str:
        """As `Signer`."""
        return self._sign(personal_digest(text.encode()))

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        """As `Signer`."""
        return self._sign(typed_digest(data))

    def _sign(self, digest: bytes) -> str:
        return "0x" + bytes(self._account.unsafe_sign_hash(digest).signature).hex()


def with_domain_type(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with the type `EIP712Domain`, which wallets require; it has the members of the domain."""
    members = [{"name": name, "type": word} for name, word in _DOMAIN.items() if name in data["domain"]]
    return {**data, "types": {"EIP712Domain": members, **data["types"]}}


def typed_digest(data: Mapping[str, Any]) -> bytes:
    """The digest of typed data, 32 bytes (EIP-712). Raises `InvalidTypedData`."""
    domain: dict[str, Any] = data["domain"]
    members = [(name, word, WORDS[word]) for name, word in _DOMAIN.items() if name in domain]
    try:
        separator = Struct("EIP712Domain", members).encode(domain)
    except Misfit as misfit:
        raise InvalidTypedData(misfit.detail, pointer=f"/domain{misfit.pointer}") from None
    struct_hash = compile_types(data["types"], data["primaryType"]).struct_hash(data["message"])
    return keccak256(b"\x19\x01" + separator + struct_hash)


def sign_text(signer: Address, text: str) -> Flow[Signature]:
    """The signature of `text` by `signer`. Raises `NotSignedBy`."""
    return checked_signature((yield SignText(text)), signer, personal_digest(text.encode()))


def sign_typed_data(signer: Address, data: Mapping[str, Any]) -> Flow[Signature]:
    """The signature of typed data by `signer`. Raises `NotSignedBy`, `InvalidTypedData`."""
    digest = typed_digest(data)
    return checked_signature((yield SignTyped(data)), signer, digest)


def checked_signature(text: str, signer: Address, digest: bytes) -> Signature:
    """What a wallet gave as the signature of a digest. Raises `NotSignedBy`."""
    try:
        signature = Signature.parse(text)
    except InvalidSignature as error:
        raise NotSignedBy(f"the signer of {signer} gave no signature: {error.detail}") from error
    if not is_by(signer, digest, signature):
        raise NotSignedBy(f"the signature is by another address than {signer}, or for other data")
    return signature
