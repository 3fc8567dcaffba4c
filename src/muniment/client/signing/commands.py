"""A wallet behind a command, such as a script around a hardware wallet.

The command gets one JSON object on its standard input and prints one line:

    {"method": "address"}                                          -> 0x…, the address
    {"method": "text", "address": "0x…", "text": "…"}              -> 0x…, the signature of personal_sign (EIP-191)
    {"method": "typedData", "address": "0x…", "data": {…}}         -> 0x…, the signature of eth_signTypedData_v4
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from muniment.client.failures import CannotSign
from muniment.client.signers import with_domain_type
from muniment.errors import InvalidAddress
from muniment.evm.address import Address

# A person reads a small screen and presses a button.
_SECONDS_MAX: Final = 300.0
# A signature has 132 characters.
_SHOWN_MAX: Final = 500


class CommandSigner:
    """A signer that runs a command for each signature. No shell reads the command line."""

    def __init__(self, line: str, *, address: str | None = None, seconds_max: float = _SECONDS_MAX) -> None:
        """Run `line`; without `address` the command is asked for it. Raises `CannotSign` for an empty line."""
        try:
            self._command = shlex.split(line)
        except ValueError as error:
            raise CannotSign(f"command: {error}") from error
        if not self._command:
            raise CannotSign("command: needs a command line")
        self._seconds_max = seconds_max
        self._address = None if address is None else Address.parse(address)

    @property
    def address(self) -> Address:
        """The address; the command says it at the first time."""
        if self._address is None:
            said = self._run({"method": "address"})
            try:
                self._address = Address.parse(said)
            except InvalidAddress:
                raise CannotSign(f"{self._command[0]} gave no address: {said[:_SHOWN_MAX]!r}") from None
        return self._address

    def sign_text(self, text: str) -> str:
        """As `Signer`."""
        return self._run({"method": "text", "address": self.address, "text": text})

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        """As `Signer`."""
        return self._run({"method": "typedData", "address": self.address, "data": with_domain_type(data)})

    def _run(self, asked: Mapping[str, Any]) -> str:
        name = self._command[0]
        try:
            done = subprocess.run(  # noqa: S603 - the caller's own command, and no shell
                self._command, input=json.dumps(asked).encode(), capture_output=True, check=False,
                timeout=self._seconds_max,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise CannotSign(f"{name} gave no signature within {self._seconds_max:.0f} seconds") from None
        except OSError as error:
            raise CannotSign(f"{name} cannot be run: {error.strerror}") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-_SHOWN_MAX:]
            raise CannotSign(f"{name} ended with status {done.returncode}: {said}")
        return done.stdout[:_SHOWN_MAX].decode("utf-8", "replace").strip()
