"""Keys in encrypted files, which are read and never written.

Their form is version 3 of the Web3 Secret Storage Definition (ethereum.org, "Web3 secret storage definition").
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, cast
from unicodedata import normalize

from muniment.client.failures import CannotSign
from muniment.client.signers import KeySigner
from muniment.protocol.errors import InvalidAddress, InvalidJson
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.json_text import parse_json
from muniment.text_files import read_text_file

# A file has less than a kilobyte.
_BYTES_MAX: Final = 64 * 1024
_VERSION: Final = 3
# Four times the cost of the usual files (n=262144, r=8, p=1: 256 MiB, a second), so that a hostile file cannot hold a
# machine for long.
_SCRYPT_BYTES_MAX: Final = 1024**3
_SCRYPT_WORK_MAX: Final = 2**23
# The library expands the password to 128 * r * p bytes in Python, in quadratic time. Usual files have r * p = 8, light
# ones of geth 48.
_SCRYPT_BLOCKS_MAX: Final = 128
_PBKDF2_ROUNDS_MAX: Final = 10_000_000
_KEY_BYTES: Final = 32
_MISSING: Final = "keystores need one more library: pip install 'muniment[keystore]'"
# The folders of foundry (`cast wallet import`) and of ape (`ape accounts import`).
FOLDERS: Final = ((".foundry/keystores", "{}"), (".ape/accounts", "{}.json"))


class WrongPassword(CannotSign):
    """The password does not open the file."""


class KeystoreSigner:
    """A signer with the key in a file. The file is decrypted at the first signature; `password` is asked for then."""

    def __init__(self, path: Path | str, password: Callable[[], str]) -> None:
        """Read the file at `path`. Raises `CannotSign` for a file of another form, and `OSError`."""
        self._path = Path(path)
        self._password = password
        self._content = _content(self._path)
        self._signer: KeySigner | None = None

    @property
    def address(self) -> Address:
        """The address in the file; a file without one is decrypted first."""
        stated = self._stated_address() if self._signer is None else None
        return stated or self._opened().address

    def sign_text(self, text: str) -> str:
        """As `Signer`."""
        return self._opened().sign_text(text)

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        """As `Signer`."""
        return self._opened().sign_typed_data(data)

    def _stated_address(self) -> Address | None:
        """The address in the file, if any."""
        stated = self._content.get("address")
        if stated is None:
            return None
        if not isinstance(stated, str):
            raise CannotSign(f"{self._path}: the keystore's address is not a string")
        try:
            return Address.parse("0x" + stated.removeprefix("0x").lower())
        except InvalidAddress:
            raise CannotSign(f"{self._path}: the keystore's address is not 40 hex digits") from None

    def _opened(self) -> KeySigner:
        if self._signer is None:
            stated = self._stated_address()
            password = self._password()
            try:
                signer = KeySigner(_opened_by(self._content, password))
            except CannotSign as error:
                raise CannotSign(f"{self._path}: {error}") from error
            if stated not in {None, signer.address}:
                raise CannotSign(
                    f"{self._path}: the keystore states the address {stated}, but its key has {signer.address}"
                )
            self._signer = signer
        return self._signer

    def __repr__(self) -> str:
        return f"KeystoreSigner({str(self._path)!r})"


def keystore_path(name: str) -> Path:
    """The file of a keystore: a path, or the name of one in a folder of foundry or ape. Raises `CannotSign`."""
    if Path(name).is_file():
        return Path(name)
    places = [Path.home() / folder / pattern.format(name) for folder, pattern in FOLDERS]
    found = [place for place in places if "/" not in name and place.is_file()]
    if not found:
        raise CannotSign(f"keystore {name} not found in {', '.join(map(str, [name, *places]))}")
    return found[0]


def _opened_by(content: Mapping[str, Any], password: str) -> bytes:
    """As `decrypted`, by the password as it was given, else in a normal form of Unicode.

    Keyboards, files and the program that encrypted may write a letter such as é as one code point or as two.
    """
    forms: tuple[Literal["NFKC", "NFC", "NFD"], ...] = ("NFKC", "NFC", "NFD")
    *others, last = dict.fromkeys([password, *(normalize(form, password) for form in forms)])  # each costs a second
    for each in others:
        with suppress(WrongPassword):
            return decrypted(content, each.encode())
    return decrypted(content, last.encode())


def decrypted(content: Mapping[str, Any], password: bytes) -> bytes:
    """The private key, 32 bytes, of the JSON object of a file. Raises `CannotSign`, for a wrong password too."""
    crypto = _object(content, "crypto") if "crypto" in content else _object(content, "Crypto")
    if content.get("version") != _VERSION or crypto.get("cipher") != "aes-128-ctr":
        raise CannotSign("the file is not a version 3 keystore with aes-128-ctr")
    derived = _derived(crypto, password)
    text = _bytes(crypto, "ciphertext")
    if not hmac.compare_digest(keccak256(derived[16:32] + text), _bytes(crypto, "mac")):
        raise WrongPassword("the password is wrong, or the file is damaged")
    if len(text) != _KEY_BYTES:
        raise CannotSign("the file has no private key of 32 bytes")
    return _aes_128_ctr(derived[:16], _bytes(_object(crypto, "cipherparams"), "iv"), text)


def _derived(crypto: Mapping[str, Any], password: bytes) -> bytes:
    """The key of the cipher and of the MAC. Raises `CannotSign` for parameters that cost too much."""
    kind, given = crypto.get("kdf"), _object(crypto, "kdfparams")
    salt = _bytes(given, "salt")
    if _number(given, "dklen") != _KEY_BYTES:
        raise CannotSign("the file derives a key of another length than 32 bytes")
    if kind == "pbkdf2" and given.get("prf") == "hmac-sha256":
        rounds = _number(given, "c")
        if rounds > _PBKDF2_ROUNDS_MAX:
            raise CannotSign(f"the file asks for {rounds} rounds of pbkdf2")
        return hashlib.pbkdf2_hmac("sha256", password, salt, rounds, _KEY_BYTES)
    if kind != "scrypt":
        raise CannotSign("the file derives its key by neither scrypt nor pbkdf2 with hmac-sha256")
    n, r, p = _number(given, "n"), _number(given, "r"), _number(given, "p")
    if (
        n & (n - 1)
        or n == 1
        or 128 * n * r > _SCRYPT_BYTES_MAX
        or n * r * p > _SCRYPT_WORK_MAX
        or r * p > _SCRYPT_BLOCKS_MAX
    ):
        raise CannotSign(f"the file asks for scrypt with n={n}, r={r}, p={p}")
    try:
        # `hashlib.scrypt` refuses r=1 with a large n, which old files have.
        from Crypto.Protocol.KDF import scrypt  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        raise CannotSign(_MISSING) from None
    return cast("bytes", scrypt(password, salt, _KEY_BYTES, N=n, r=r, p=p))  # pyright: ignore[reportArgumentType] - bytes are taken as well as str


def _aes_128_ctr(key: bytes, iv: bytes, text: bytes) -> bytes:
    try:
        from Crypto.Cipher import AES  # noqa: PLC0415 - the extra may be missing
    except ImportError:
        raise CannotSign(_MISSING) from None
    if len(iv) != AES.block_size:
        raise CannotSign("the file has no iv of 16 bytes")
    cipher = AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=iv)  # pyright: ignore[reportUnknownMemberType] - its stubs leave one argument untyped
    return cipher.decrypt(text)


def _content(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_text_file(path, _BYTES_MAX))
    except InvalidJson:
        found = None
    if not isinstance(found, dict):
        raise CannotSign(f"{path} is not a keystore file")
    return cast("dict[str, Any]", found)


def _object(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise CannotSign(f"the keystore lacks {name}")
    return cast("Mapping[str, Any]", value)


def _bytes(parent: Mapping[str, Any], name: str) -> bytes:
    value = parent.get(name)
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        raise CannotSign(f"the keystore's {name} is not hex") from None


def _number(parent: Mapping[str, Any], name: str) -> int:
    value = parent.get(name)
    if type(value) is not int or value < 1:
        raise CannotSign(f"the keystore's {name} is not a positive number")
    return value
