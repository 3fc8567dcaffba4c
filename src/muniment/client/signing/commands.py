"""A wallet that is a command, such as a script around a hardware wallet.

The command has no terminal. It gets one JSON object on its standard input and prints one line:

    {"method": "address"}                                          -> 0x…, the address
    {"method": "text", "address": "0x…", "text": "…"}              -> 0x…, the signature of personal_sign (EIP-191)
    {"method": "typedData", "address": "0x…", "data": {…}}         -> 0x…, the signature of eth_signTypedData_v4
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from tempfile import TemporaryFile
from threading import Thread
from typing import IO, Any, Final

from muniment.client.failures import CannotSign
from muniment.client.signers import with_domain_type
from muniment.protocol.errors import InvalidAddress
from muniment.protocol.evm.address import Address

# A person reads a small screen and presses a button.
_SECONDS_MAX: Final = 300.0
# A signature has 132 characters.
_SHOWN_MAX: Final = 500
_PIECE_BYTES: Final = 64 * 1024


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
        """The address; the command is asked for it once."""
        if self._address is None:
            given = self._run({"method": "address"})
            try:
                self._address = Address.parse(given)
            except InvalidAddress:
                raise CannotSign(f"{self._command[0]} gave no address: {given[:_SHOWN_MAX]!r}") from None
        return self._address

    def sign_text(self, text: str) -> str:
        """As `Signer`."""
        return self._run({"method": "text", "address": self.address, "text": text})

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        """As `Signer`."""
        return self._run({"method": "typedData", "address": self.address, "data": with_domain_type(data)})

    def _run(self, asked: Mapping[str, Any]) -> str:
        name = self._command[0]
        until = time.monotonic() + self._seconds_max
        with TemporaryFile() as request:
            request.write(json.dumps(asked).encode())
            request.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - the caller's own command, and no shell
                    self._command, stdin=request, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise CannotSign(f"{name} cannot be run: {error.strerror}") from error
        output, complaint = _Output(process.stdout), _Output(process.stderr)
        try:
            output.join(max(0, until - time.monotonic()))
            complaint.join(max(0, until - time.monotonic()))
            status = process.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise CannotSign(f"{name} gave no signature within {self._seconds_max:.0f} seconds") from None
        finally:
            # After a timeout, and when a person interrupts.
            if process.poll() is None:
                _kill_all(process)
        if status:
            raise CannotSign(f"{name} ended with status {status}: {complaint.last.decode('utf-8', 'replace').strip()}")
        return output.first.decode("utf-8", "replace").strip()


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """End a command and the processes that it has started, which are a group of their own."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Output(Thread):
    """Reads a stream of a command to its end, and keeps only the first and the last bytes."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        assert stream is not None  # noqa: S101 - each stream of the command is a pipe
        self._stream = stream
        self.first = self.last = b""
        self.start()

    def run(self) -> None:
        """Read."""
        with self._stream:
            while piece := self._stream.read(_PIECE_BYTES):
                self.first = (self.first + piece)[:_SHOWN_MAX]
                self.last = (self.last + piece)[-_SHOWN_MAX:]
