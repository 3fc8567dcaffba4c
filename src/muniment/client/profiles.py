"""Profiles of a user: registries, and the credentials that a login has stored.

Profiles are in `config.toml` below `$XDG_CONFIG_HOME/muniment` (XDG Base Directory Specification), credentials in
`credentials.json` beside it, which other users cannot read. Credentials belong to an origin and an address: a profile
with another URL does not get them.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from msgspec import convert

from muniment.client.words import Words
from muniment.durable import make_directory, whole_file
from muniment.text_files import read_text_file

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_BYTES_MAX: Final = 1024 * 1024
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Profile:
    """A registry, and the wallet with which it is used. `wallet` names it as `muniment login --wallet` does."""

    url: str
    address: str | None = None
    wallet: str | None = None
    protocol: str = "Mimic"


@dataclass(frozen=True, slots=True)
class Profiles:
    """The profiles in a directory."""

    directory: Path

    @classmethod
    def of_user(cls) -> Self:
        """The profiles of the current user. Raises `ValueError` for a user without a home directory."""
        configured = os.environ.get("XDG_CONFIG_HOME") or ""
        # The specification: a relative path in the variable is ignored.
        try:
            home = Path(configured) if configured.startswith("/") else Path.home() / ".config"
        except RuntimeError:
            raise ValueError("this user has no home directory: set HOME or XDG_CONFIG_HOME") from None
        return cls(home / "muniment")

    @property
    def credentials_file(self) -> Path:
        """The file with the credentials."""
        return self.directory / "credentials.json"

    def all(self) -> dict[str, Profile]:
        """Every profile by name. Raises `ValueError` for a damaged file."""
        path = self.directory / "config.toml"
        try:
            content = read_text_file(path, _BYTES_MAX)
        except FileNotFoundError:
            return {}
        try:
            tables = convert(tomllib.loads(content.decode()).get("profiles", {}), dict[str, dict[str, str]])
            return {name: Profile(**members) for name, members in tables.items()}
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} is not a valid profiles file: {error}") from error

    def get(self, name: str) -> Profile:
        """The profile of this name. Raises `ValueError` for an unknown name."""
        found = self.all()
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise ValueError(f"profile {name} not found; known profiles: {known}")
        return found[name]

    def put(self, name: str, profile: Profile) -> None:
        """Add a profile, or replace it. Raises `ValueError` for another name than letters, digits, - and _."""
        if NAME.fullmatch(name) is None:
            raise ValueError("the name of a profile has up to 40 letters, digits, - and _")
        with self._locked():
            self._write({**self.all(), name: profile})

    def remove(self, name: str) -> None:
        """Remove a profile. Its credentials stay: `forget` removes them."""
        with self._locked():
            self.get(name)
            self._write({other: profile for other, profile in self.all().items() if other != name})

    @property
    def words(self) -> Words:
        """The origins of registries whose log-ins were in words: none of them gets the signature of a bare nonce."""
        return Words(self.directory / "log-ins-in-words")

    def credentials(self, profile: Profile) -> dict[str, str]:
        """`token` and `apiKey` of the profile, where a login has stored them.

        Raises `ValueError` for a file that others can read, or that is damaged.
        """
        return self._credentials().get(_place(profile), {})

    def keep(self, profile: Profile, **found: str) -> None:
        """Add credentials to the stored ones."""
        with self._locked():
            every = self._credentials()
            every[_place(profile)] = {**every.get(_place(profile), {}), **found}
            self._write_credentials(every)

    def forget(self, profile: Profile) -> bool:
        """Remove the credentials of the profile; returns whether any were stored."""
        if not self.credentials(profile):
            return False
        with self._locked():
            every = self._credentials()
            every.pop(_place(profile), None)
            self._write_credentials(every)
        return True

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Lock the files against other processes, since each change rewrites a whole file."""
        import fcntl  # noqa: PLC0415 - Windows has none, and a client without profiles works there

        make_directory(self.directory)
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, profiles: dict[str, Profile]) -> None:
        lines: list[str] = []
        for name, profile in sorted(profiles.items()):
            lines.append(f"[profiles.{name}]")
            # A JSON string is a basic string of TOML.
            lines += [f"{key} = {json.dumps(value)}" for key, value in asdict(profile).items() if value is not None]
            lines.append("")
        # Private, because the URL of a wallet may contain its token.
        with whole_file(self.directory / "config.toml", is_private=True) as file:
            file.write("\n".join(lines).encode())

    def _credentials(self) -> dict[str, dict[str, str]]:
        path = self.credentials_file
        try:
            mode = path.stat().st_mode
            content = read_text_file(path, _BYTES_MAX)
        except FileNotFoundError:
            return {}
        if mode & _OTHERS:
            raise ValueError(f"other users of this machine can read {path}: chmod 600 it, and rotate its API keys")
        try:
            return convert(json.loads(content), dict[str, dict[str, str]])
        except (ValueError, RecursionError):
            raise ValueError(f"{path} is not a valid credentials file: remove it, and log in again") from None

    def _write_credentials(self, every: dict[str, dict[str, str]]) -> None:
        with whole_file(self.credentials_file, is_private=True) as file:
            file.write(json.dumps(every, indent=2).encode() + b"\n")


def _place(profile: Profile) -> str:
    """Origin and address: the key of credentials."""
    parts = urlsplit(profile.url)
    return f"{parts.scheme}://{parts.netloc} {profile.address or ''}".strip()
