"""Signers by a text, as configurations and command lines name them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING

from muniment.client.failures import CannotSign
from muniment.client.signers import KeySigner
from muniment.text_files import read_text

if TYPE_CHECKING:
    from muniment.client.signers import Signer

# Longer than any password, so that a wrong file costs no memory.
_PASSWORD_BYTES_MAX = 4_096


def signer_of(spec: str, *, address: str | None = None, password: Callable[[], str] | None = None) -> Signer:
    """The signer that `spec` names.

    `key`: the key in `MUNIMENT_PRIVATE_KEY` or its file. `keystore:NAME`: an encrypted file, by path or by its name in
    a folder of foundry or ape; `password` gives its password, by default `MUNIMENT_PASSWORD_FILE` or a prompt.
    `rpc:URL`: a wallet at a JSON-RPC URL. `command:LINE`: a command that signs. `browser`: a wallet in a browser.
    `address` is the account to use; `rpc:URL#ADDRESS` and `browser:ADDRESS` name another one. Raises `ValueError` for
    another text, `InvalidAddress`, and `CannotSign`.
    """
    kind, _, rest = spec.partition(":")
    if kind == "key" and not rest:
        return KeySigner.from_environment()
    if kind == "keystore" and rest:
        from muniment.client.signing.keystores import KeystoreSigner, keystore_path  # noqa: PLC0415 - few use it

        path = keystore_path(rest)
        return KeystoreSigner(path, password or (lambda: _password(path)))
    if kind == "rpc" and rest:
        from muniment.client.signing.nodes import RpcSigner  # noqa: PLC0415 - few use it

        url, _, named = rest.partition("#")
        return RpcSigner(url, address=named or address)
    if kind == "command" and rest:
        from muniment.client.signing.commands import CommandSigner  # noqa: PLC0415 - few use it

        return CommandSigner(rest, address=address)
    if spec == "browser" or (kind == "browser" and rest):
        from muniment.client.signing.browser import BrowserSigner  # noqa: PLC0415 - few use it

        return BrowserSigner(address=rest or address)
    # The text is not repeated: it may be a private key.
    raise ValueError("unknown wallet: use key, keystore:NAME, rpc:URL[#ADDRESS], command:LINE or browser[:ADDRESS]")


def _password(path: Path) -> str:
    """The password of a keystore: the first line of a file, or typed."""
    if file := os.environ.get("MUNIMENT_PASSWORD_FILE"):
        return read_text(Path(file), _PASSWORD_BYTES_MAX).partition("\n")[0].removesuffix("\r")
    if not sys.stdin.isatty():
        raise CannotSign("the keystore needs a password: set MUNIMENT_PASSWORD_FILE")
    return getpass(f"Password of {path}: ", stream=sys.stderr)
