"""Accounts of the eth-account library as signers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from muniment.client.signers import typed_digest
from muniment.evm.address import Address
from muniment.evm.signature import personal_digest


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
