"""Keys in encrypted files, by the vectors of the Web3 Secret Storage Definition and by eth-account."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from builders import Wallet
from counted_calls import calls_within
from each_row import each_row
from eth_signing import Account
from muniment.client import CannotSign, signer_of
from muniment.client.signing import keystores
from muniment.client.signing.keystores import KeystoreSigner, decrypted

# ethereum.org, "Web3 secret storage definition", test vectors: the same key and password in both.
KEY = bytes.fromhex("7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d")
PASSWORD = "testpassword"
PBKDF2: dict[str, Any] = {
    "crypto": {
        "cipher": "aes-128-ctr", "cipherparams": {"iv": "6087dab2f9fdbbfaddc31a909735c1e6"},
        "ciphertext": "5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46",
        "kdf": "pbkdf2",
        "kdfparams": {
            "c": 262144, "dklen": 32, "prf": "hmac-sha256",
            "salt": "ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd",
        },
        "mac": "517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2",
    },
    "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6", "version": 3,
}  # fmt: skip
SCRYPT: dict[str, Any] = {
    "crypto": {
        "cipher": "aes-128-ctr", "cipherparams": {"iv": "83dbcc02d8ccb40e466191a123791e0e"},
        "ciphertext": "d172bf743a674da9cdad04534d56926ef8358534d458fffccd4e6ad2fbde479c",
        "kdf": "scrypt",
        "kdfparams": {
            "dklen": 32, "n": 262144, "p": 8, "r": 1,
            "salt": "ab0c7876052600dd703518d6fc3fe8984592145b591fc8fb5c6d43190334ba19",
        },
        "mac": "2103ac29920d71da29f15d75b4a16dbe95cfd7ff8faea1056c33131d846e3097",
    },
    "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6", "version": 3,
}  # fmt: skip


def changed(content: dict[str, Any], **members: Any) -> dict[str, Any]:
    """`content` with other members, below `crypto`, `kdfparams` or `cipherparams` by `a__b`."""
    copy = json.loads(json.dumps(content))
    for name, value in members.items():
        *parents, last = name.split("__")
        at = copy
        for parent in parents:
            at = at[parent]
        at[last] = value
    return copy


@pytest.mark.parametrize(
    "content", [pytest.param(PBKDF2, id="pbkdf2"), pytest.param(SCRYPT, id="scrypt with r=1", marks=pytest.mark.long)]
)
def test_the_vectors_of_the_definition_are_read(content: dict[str, Any]) -> None:
    assert decrypted(content, PASSWORD.encode()) == KEY
    with pytest.raises(CannotSign, match="the password is wrong, or the file is damaged"):
        decrypted(content, b"testpasswords")


@pytest.mark.parametrize("kdf", ["pbkdf2", "scrypt"])
def test_a_file_of_eth_account_signs_as_its_wallet(tmp_path: Path, kdf: Any) -> None:
    wallet, password = Wallet(41), "pässword"
    file = tmp_path / "file.json"
    file.write_text(json.dumps(Account.encrypt(wallet.key, password, kdf=kdf, iterations=1024)))
    asked: list[int] = []

    def ask() -> str:
        asked.append(1)
        return password

    signer = KeystoreSigner(file, ask)
    assert signer.address == wallet.address
    assert asked == []  # the file says the address
    assert signer.sign_text("hello") == wallet.sign_text("hello")
    signer.sign_text("again")
    assert asked == [1]
    assert wallet.key.hex() not in repr(signer)


def test_a_file_is_found_by_its_name_in_the_folders_of_foundry_and_ape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "password").write_text("secret\n")
    monkeypatch.setenv("MUNIMENT_PASSWORD_FILE", str(tmp_path / "password"))
    for number, place in ((42, ".foundry/keystores/main"), (43, ".ape/accounts/other.json")):
        file = tmp_path / place
        file.parent.mkdir(parents=True)
        content = Account.encrypt(Wallet(number).key, "secret", kdf="pbkdf2", iterations=1024)
        content.pop("address", None)  # foundry writes none
        file.write_text(json.dumps(content))
    assert signer_of("keystore:main").address == Wallet(42).address
    assert signer_of("keystore:other").address == Wallet(43).address
    assert signer_of(f"keystore:{tmp_path / '.foundry/keystores/main'}").address == Wallet(42).address
    with pytest.raises(CannotSign, match="keystore third not found"):
        signer_of("keystore:third")


def test_without_a_terminal_a_password_must_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUNIMENT_PASSWORD_FILE", raising=False)
    (tmp_path / "file").write_text(json.dumps(PBKDF2))
    with pytest.raises(CannotSign, match="set MUNIMENT_PASSWORD_FILE"):
        _ = signer_of(f"keystore:{tmp_path / 'file'}").address


@pytest.mark.parametrize(
    "content",
    [
        changed(PBKDF2, crypto__kdfparams__c=10**12), changed(PBKDF2, crypto__kdfparams__c=0),
        changed(PBKDF2, crypto__kdfparams__c="262144"), changed(PBKDF2, crypto__kdfparams__prf="hmac-md5"),
        changed(PBKDF2, crypto__kdfparams__dklen=2**40), changed(PBKDF2, crypto__kdf="argon2"),
        changed(SCRYPT, crypto__kdfparams__n=2**40), changed(SCRYPT, crypto__kdfparams__n=262143),
        changed(SCRYPT, crypto__kdfparams__p=2**30), changed(SCRYPT, crypto__kdfparams__r=2**30),
        changed(SCRYPT, crypto__kdfparams__n=2, crypto__kdfparams__p=2**14),
        changed(PBKDF2, crypto__mac="xy"), changed(PBKDF2, crypto__mac=None), changed(PBKDF2, crypto=[]),
        changed(PBKDF2, crypto__cipher="aes-256-cbc"), changed(PBKDF2, version=1), changed(PBKDF2, crypto__kdfparams=3),
        changed(PBKDF2, crypto__ciphertext="00"), {},
    ],
)  # fmt: skip
def test_a_hostile_file_costs_no_time_and_is_named(content: dict[str, Any]) -> None:
    with calls_within(10_000), pytest.raises(CannotSign):
        decrypted(content, PASSWORD.encode())


def test_a_file_with_the_address_of_another_key_signs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps(changed(PBKDF2, address=Wallet(44).address[2:].lower())))
    signer = KeystoreSigner(tmp_path / "file", lambda: PASSWORD)
    with pytest.raises(
        CannotSign, match=f"file: the keystore states the address {Wallet(44).address}, but its key has 0x008AeEda"
    ):
        signer.sign_text("hello")
    assert signer.address == Wallet(44).address


@each_row("said", ["", "0x", "0x" + "ab" * 19, "xy" * 20, "ab" * 21])
def test_an_address_that_is_none_is_named_with_its_file(said: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_text(json.dumps(changed(PBKDF2, address=said)))
        signer = KeystoreSigner(file, lambda: PASSWORD)
        for use in (lambda: signer.address, lambda: signer.sign_text("hello")):
            with pytest.raises(CannotSign) as raised:
                use()
            assert str(raised.value) == f"{file}: the keystore's address is not 40 hex digits"


# A letter in one code point, in two, and one that only the compatibility forms change.
COMPOSED, DECOMPOSED, LIGATURE = "p\u00e4ss", "pa\u0308ss", "\ufb01p\u00e4"


@each_row(("encrypted", "typed"), [
    (COMPOSED, COMPOSED), (COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED), (DECOMPOSED, DECOMPOSED),
    (LIGATURE, LIGATURE), ("fip\u00e4", LIGATURE), ("\ufb01pa\u0308", LIGATURE), (LIGATURE, "\ufb01pa\u0308"),
])  # fmt: skip
def test_a_password_is_right_in_each_spelling_of_its_letters(encrypted: str, typed: str) -> None:
    content = Account.encrypt(Wallet(46).key, encrypted, kdf="pbkdf2", iterations=1024)
    with TemporaryDirectory() as folder:
        (Path(folder) / "file").write_text(json.dumps(content))
        assert KeystoreSigner(Path(folder) / "file", lambda: typed).sign_text("x") == Wallet(46).sign_text("x")


@each_row(("typed", "tries"), [("plain", 1), ("p\u00e4ss", 2), ("pa\u0308ss", 2), (LIGATURE, 3)])
def test_a_wrong_password_is_tried_once_in_each_spelling_and_the_file_named(typed: str, tries: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        file, tried = Path(folder) / "file", list[bytes]()

        def counted(content: dict[str, Any], password: bytes) -> bytes:
            tried.append(password)
            return decrypted(content, password)

        patched.setattr(keystores, "decrypted", counted)
        file.write_text(json.dumps(Account.encrypt(Wallet(46).key, "other", kdf="pbkdf2", iterations=1)))
        with pytest.raises(CannotSign) as raised:
            KeystoreSigner(file, lambda: typed).sign_text("x")
        assert str(raised.value) == f"{file}: the password is wrong, or the file is damaged"
        assert tried[0] == typed.encode()
        assert len(tried) == len(set(tried)) == tries


@pytest.mark.parametrize("said", [5, [], {}, False])
def test_an_address_that_is_no_text_is_named(tmp_path: Path, said: object) -> None:
    (tmp_path / "file").write_text(json.dumps(changed(PBKDF2, address=said)))
    signer = KeystoreSigner(tmp_path / "file", lambda: PASSWORD)
    with pytest.raises(CannotSign, match="the keystore's address is not a string"):
        _ = signer.address
    with pytest.raises(CannotSign, match="the keystore's address is not a string"):
        signer.sign_text("hello")


def test_the_password_is_the_whole_first_line_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Account.encrypt(Wallet(45).key, " one\u2028two ", kdf="pbkdf2", iterations=1024)
    (tmp_path / "file").write_text(json.dumps(content))
    (tmp_path / "password").write_text(" one\u2028two \nanother line")
    monkeypatch.setenv("MUNIMENT_PASSWORD_FILE", str(tmp_path / "password"))
    assert signer_of(f"keystore:{tmp_path / 'file'}").sign_text("hello") == Wallet(45).sign_text("hello")


@pytest.mark.parametrize("text", ["", "[]", "{", '"text"', '{"version": 3, "version": 3}', '{"version": NaN}'])
def test_a_file_that_is_no_keystore_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(CannotSign, match="is not a keystore file"):
        signer_of(f"keystore:{tmp_path / 'file'}")


def test_a_file_of_many_brackets_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("[" * 60_000)
    # In a process of its own: eth-account raises the limit of recursion in this one.
    program = "import sys; from muniment.client import signer_of; signer_of('keystore:' + sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "file"], capture_output=True, check=False)
    assert b"CannotSign" in done.stderr
