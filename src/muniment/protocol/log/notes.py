"""Signed notes: a text, and lines with signatures by named keys (c2sp.org/signed-note 1.0.0)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from muniment.protocol.log.fields import base64_of, bytes_of, check_name
from muniment.protocol.log.keys import SigningKey, VerifierKey

# The limits of golang.org/x/mod/sumdb/note. A note with 16 signatures after quantum computers has some 110 kB.
NOTE_BYTES_MAX: Final = 1_000_000
SIGNATURES_MAX: Final = 100
_ID_BYTES: Final = 4
_DASH: Final = "\u2014 "
# ASCII control characters but the newline.
_FORBIDDEN: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")


class NoteSignature(NamedTuple):
    """A line with a signature: the name and the id of a key, and what the key made."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def line(self) -> str:
        """The line, with its newline."""
        return f"{_DASH}{self.name} {base64_of(self.key_id + self.signature)}\n"


class Note(NamedTuple):
    """A text, which ends in a newline, and its unverified signatures."""

    text: str
    signatures: tuple[NoteSignature, ...]

    @property
    def data(self) -> bytes:
        """The note as it is sent."""
        return f"{self.text}\n{''.join(each.line for each in self.signatures)}".encode()


def parse_note(data: bytes) -> Note:
    """The note in `data`, without verification. Raises `ValueError`."""
    if len(data) > NOTE_BYTES_MAX:
        raise ValueError(f"a note has at most {NOTE_BYTES_MAX} bytes")
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        raise ValueError("a note is UTF-8") from None
    if _FORBIDDEN.search(whole):
        raise ValueError("a note has no control characters but newlines")
    split = whole.rfind("\n\n") + 1
    text, lines = whole[:split], whole[split + 1 :]
    if not split or not lines.endswith("\n"):
        raise ValueError("a note is a text, an empty line, and lines of signatures, each with its newline")
    if lines.count("\n") > SIGNATURES_MAX:
        raise ValueError(f"a note has at most {SIGNATURES_MAX} signatures")
    return Note(text, tuple(_parse_line(line) for line in lines[:-1].split("\n")))


def sign_note(text: str, keys: Iterable[SigningKey], at_s: int) -> Note:
    """The note with signatures by these keys, made at `at_s` seconds since 1970. Raises `ValueError` for the text."""
    if not text.endswith("\n") or _FORBIDDEN.search(text):
        raise ValueError("the text of a note ends in a newline and has no other control characters")
    signatures = [NoteSignature(key.verifier.name, key.verifier.key_id, key.sign(text, at_s)) for key in keys]
    return Note(text, tuple(signatures))


def verified(note: Note, keys: Iterable[VerifierKey]) -> Mapping[VerifierKey, int]:
    """The keys among `keys` that signed the note, each with the time of its signature (`VerifierKey.signed_at`).

    Ignores signatures by other keys, and all but the first by each key. Raises `ValueError` if a signature by one of
    `keys` does not verify. The result may be empty.
    """
    known = dict[tuple[str, bytes], VerifierKey]()
    for key in keys:
        if known.setdefault((key.name, key.key_id), key) != key:
            raise ValueError(f"two keys of {key.name} have the same id")
    found = dict[VerifierKey, int]()
    for each in note.signatures:
        key = known.get((each.name, each.key_id))
        if key is None or key in found:
            continue
        at_s = key.signed_at(note.text, each.signature)
        if at_s is None:
            raise ValueError(f"the signature of {key.name} does not verify")
        found[key] = at_s
    return found


def _parse_line(line: str) -> NoteSignature:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not space:
        raise ValueError("a line with a signature is a dash, the name of a key, and base64")
    content = bytes_of(encoded, "a signature")
    if len(content) <= _ID_BYTES:
        raise ValueError("a signature is four bytes that name the key, and more")
    return NoteSignature(check_name(name), content[:_ID_BYTES], content[_ID_BYTES:])
