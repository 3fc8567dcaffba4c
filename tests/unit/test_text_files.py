"""A file that a person wrote on Windows is read wherever people write files: with a byte-order mark and CR LF."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account

from builders import Wallet
from each_row import each_row
from muniment.chains import token_lists
from muniment.chains.catalogue import load_chains
from muniment.chains.prices import StaticPrices
from muniment.cli.client.kubo import authorization
from muniment.cli.client.triggers import read_place
from muniment.cli.tlog import read_seen
from muniment.client import Checkpoint, KeySigner, Profile, Profiles, signer_of
from muniment.relayer.settings import load_relayer_settings
from muniment.service.blocks import s3
from muniment.service.resources.log.witnesses import read_policy
from muniment.service.running.settings import Settings, load_settings
from muniment.text_files import read_text_file

MARK = b"\xef\xbb\xbf"
WALLET = Wallet(41)
KEY = WALLET.key.hex()
KEYSTORE: dict[str, Any] = Account.encrypt(WALLET.key, "pass word", kdf="pbkdf2", iterations=1)
TOKENS = {"name": "List", "timestamp": "2026-01-01T00:00:00Z", "version": {"major": 1, "minor": 0, "patch": 0}}
TOKEN = {"chainId": 1, "address": "0x" + "11" * 20, "name": "One", "symbol": "ONE", "decimals": 6}
RELAYER = '[relayer]\nregistry = "http://h"\nsigners = ["*"]\nfunctions = ["*"]\nchains = ["*"]\n'


def of_password(path: Path) -> str:
    keystore = path.with_name("keystore")
    keystore.write_text(json.dumps(KEYSTORE))
    os.environ["MUNIMENT_PASSWORD_FILE"] = str(path)
    return signer_of(f"keystore:{keystore}").sign_text("x")


def of_profiles(path: Path) -> object:
    return Profiles(path.rename(path.with_name("config.toml")).parent).all()


def of_credentials(path: Path) -> object:
    kept = path.rename(path.with_name("credentials.json"))
    kept.chmod(0o600)
    return Profiles(kept.parent).credentials(Profile("http://h"))


def of_variable(name: str, read: Callable[[], object]) -> Callable[[Path], object]:
    """What is read with the path in the variable `name`."""

    def use(path: Path) -> object:
        os.environ[name] = str(path)
        return read()

    return use


def of_relayer_key(path: Path) -> object:
    settings = path.with_name("relayer.toml")
    settings.write_text(RELAYER + f'operator_key_file = "{path.name}"\n')
    path.chmod(0o600)
    return load_relayer_settings(settings, {}).operator_key


# What a person writes, and what it is read as where Muniment reads it.
READ: dict[str, tuple[str, Callable[[Path], object]]] = {
    "keystore": (json.dumps(KEYSTORE, indent=1), lambda path: signer_of(f"keystore:{path}").address),
    "password": ("pass word\nsecond line\n", of_password),
    "private key": (f"{KEY}\n", of_variable("MUNIMENT_PRIVATE_KEY_FILE", lambda: KeySigner.from_environment().address)),
    "profiles": ('[profiles.default]\nurl = "http://h"\n', of_profiles),
    "credentials": ('{"http://h": {\n"token": "t"}}\n', of_credentials),
    "position": ('{"cursor": "abc",\n"about": {}}\n', lambda path: Checkpoint(path).read()),
    "settings": ('host = "::1"\nport = 1\n', lambda path: load_settings(environ={}, config=path)),
    "setting": (f"{'ab' * 32}\n", lambda path: load_settings(environ={"MUNIMENT_SECRET_FILE": str(path)}).secret),
    "chains": ('[[chains]]\nid = 424242\nname = "Mine"\n', lambda path: load_chains(str(path))[424242].name),
    "prices in TOML": (
        f'"1:0x{"11" * 20}" = 1.5\n', lambda path: vars(StaticPrices.read(path.rename(path.with_suffix(".toml")))),
    ),
    "prices in JSON": (f'{{\n"1:0x{"11" * 20}": 1.5\n}}\n', lambda path: vars(StaticPrices.read(path))),
    "token list": (json.dumps({**TOKENS, "tokens": [TOKEN]}, indent=1), token_lists._read),
    "relayer": (RELAYER, lambda path: load_relayer_settings(path, {})),
    "key of an operator": ("mno_1\n", of_relayer_key),
    "policy": ("# comment\nquorum none\n", lambda path: read_policy(Settings(tlog_policy=str(path)))),
    "authorization": ("Bearer abc\n", of_variable("MUNIMENT_KUBO_AUTHORIZATION_FILE", authorization)),
    "key of S3": ("abc\n", of_variable("AWS_SECRET_ACCESS_KEY_FILE", s3._credentials)),
    "draft": ('{\n"a": 1}\n', lambda path: read_place(str(path), 1_000)),
    "state of a log": ('{"origin": "a",\n"vkeys": ["b", "c"], "note": "d"}\n', read_seen),
}  # fmt: skip


@each_row("kind", READ)
def test_a_file_is_read_as_it_was_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    text, read = READ[kind]
    seen: list[object] = []
    plain, windows = text.encode(), text.replace("\n", "\r\n").encode()
    for number, content in enumerate((plain, MARK + plain, windows, MARK + windows)):
        folder = tmp_path / f"{kind}-{number}"
        folder.mkdir()
        (folder / "file").write_bytes(content)
        with monkeypatch.context() as patched:
            patched.setattr(os, "environ", dict(os.environ))
            seen.append(repr(read(folder / "file")).replace(str(folder), ""))
    assert len(set(seen)) == 1, seen


def test_one_mark_is_skipped_and_a_second_one_is_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(MARK + MARK + b"a\r\nb\rc\n")
    assert read_text_file(path) == MARK + b"a\nb\rc\n"
    assert read_place(str(path), 100) == read_text_file(path)


def test_a_longer_file_is_seen_to_be_longer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"\r\n" * 50, MARK + b"\r\n" * 50, MARK + b"a" * 11, b"a" * 11):
        path.write_bytes(content)
        assert len(read_text_file(path, 11)) == 11
