"""Bundles: their rules, their manifests and their blocks. Pure: bytes in, values out."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from muniment.protocol.errors import Fault, Invalid, InvalidJson, InvalidManifest
from muniment.protocol.functions.wasm import check_wasm
from muniment.protocol.ipfs.unixfs import UNIXFS_V0_2015, UNIXFS_V1_2025, Import, import_files
from muniment.protocol.json_text import parse_json
from muniment.protocol.wire import Record, SemVer, json_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muniment.protocol.ipfs.cid import Cid
    from muniment.protocol.ipfs.unixfs import Profile

# Rules of the interface; lengths are in characters.
NAME_LENGTH_MAX: Final = 100
DESCRIPTION_LENGTH_MAX: Final = 1000
INPUTS_MAX: Final = 64

_INPUT_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_INPUT_TYPE: Final = re.compile(
    r"u?int(8|16|32|64|128|256)?|bool|address|bytes([1-9]|[12][0-9]|3[0-2])?|string|Token|TokenAmount"
)
# Characters of a wrong text that a message quotes.
_QUOTE_LENGTH: Final = 40


class Manifest(Record, frozen=True):
    """The members of manifest.json that this registry uses; others are ignored.

    `inputs` maps the name of each input to its type word, in the order of the manifest.
    """

    name: str
    version: SemVer
    description: str
    inputs: Mapping[str, str]


def read_manifest(data: bytes) -> Manifest:
    """The manifest in `data`. Raises `InvalidManifest` with a pointer to each wrong member.

    The caller limits the size of `data`.
    """
    members = _read_object(data)
    faults: list[Fault] = []

    def read(check: Callable[[Any], Any], name: str) -> Any:
        try:
            if name not in members:
                raise InvalidManifest("is missing")
            return check(members[name])
        except Invalid as refusal:
            faults.extend(refusal.under(f"/{name}").faults)

    name = read(_check_name, "name")
    version = read(_check_version, "version")
    description = read(_check_description, "description")
    inputs = read(_check_inputs, "inputs")
    for optional, check in (("abis", _check_abis), ("metadata", _check_object)):
        if optional in members:
            read(check, optional)
    if faults:
        raise InvalidManifest(f"manifest.json: {faults[0].pointer} {faults[0].detail}", faults=faults)
    return Manifest(name=name, version=version, description=description, inputs=inputs)


def _read_object(data: bytes) -> dict[str, Any]:
    try:
        value = parse_json(data)
    except InvalidJson as refusal:
        raise InvalidManifest(f"manifest.json: {refusal.detail}", pointer="") from refusal
    if not isinstance(value, dict):
        raise InvalidManifest(f"manifest.json is a JSON object, not {json_kind(value)}", pointer="")
    return cast("dict[str, Any]", value)


def _check_text(value: object, length_max: int) -> str:
    if not isinstance(value, str):
        raise InvalidManifest(f"is a string, not {json_kind(value)}")
    if not 1 <= len(value) <= length_max:
        raise InvalidManifest(f"has 1 to {length_max} characters, not {len(value)}")
    if "\0" in value:
        raise InvalidManifest("has the character U+0000, which is not stored")
    return value


def _check_name(value: object) -> str:
    return _check_text(value, NAME_LENGTH_MAX)


def _check_description(value: object) -> str:
    return _check_text(value, DESCRIPTION_LENGTH_MAX)


def _check_version(value: object) -> SemVer:
    if not isinstance(value, str):
        raise InvalidManifest(f"is a string, not {json_kind(value)}")
    return SemVer.parse(value)


def _check_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidManifest(f"is an object, not {json_kind(value)}")
    return cast("dict[str, Any]", value)


def _check_inputs(value: object) -> dict[str, str]:
    inputs = _check_object(value)
    if len(inputs) > INPUTS_MAX:
        raise InvalidManifest(f"has at most {INPUTS_MAX} members, not {len(inputs)}")
    return {_check_input_name(name): _check_input(name, declared) for name, declared in inputs.items()}


def _check_input_name(name: str) -> str:
    """Check that a name is an identifier, because it becomes a member of an EIP-712 struct and a JavaScript object."""
    if name == "__proto__" or not _INPUT_NAME.fullmatch(name):
        raise InvalidManifest(
            f"has a member named {_quote(name)}; an input is named with letters, digits, _ and $, not a digit first",
            pointer=_pointer(name),
        )
    return name


def _check_input(name: str, declared: object) -> str:
    """The type word of one input, which is declared as a type word or as an object with a `type`."""
    if isinstance(declared, str):
        return _check_type(declared, _pointer(name))
    if not isinstance(declared, dict):
        raise InvalidManifest(f"is a type or an object with one, not {json_kind(declared)}", pointer=_pointer(name))
    members = cast("dict[str, Any]", declared)
    if not isinstance(members.get("description", ""), str):
        raise InvalidManifest("is a string", pointer=_pointer(name, "description"))
    return _check_type(members.get("type"), _pointer(name, "type"))


def _check_type(word: object, pointer: str) -> str:
    if not isinstance(word, str) or not _INPUT_TYPE.fullmatch(word):
        shown = _quote(word) if isinstance(word, str) else json_kind(word)
        raise InvalidManifest(f"is not the type of an input: {shown}", pointer=pointer)
    return word


def _check_abis(value: object) -> None:
    for name, abi in _check_object(value).items():
        if not isinstance(abi, str):
            raise InvalidManifest(f"is a string, not {json_kind(abi)}", pointer=_pointer(name))


def _quote(text: str) -> str:
    return ascii(text[:_QUOTE_LENGTH])


def _pointer(*names: str) -> str:
    """A JSON pointer (RFC 6901) to a member; empty if a name is too long to show."""
    shown = names if all(len(name) <= NAME_LENGTH_MAX for name in names) else ()
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in shown)


MANIFEST: Final = "manifest.json"
WASM: Final = "function.wasm"


class Content(Protocol):
    """The bytes of an uploaded file, which may be on disk."""

    @property
    def is_on_disk(self) -> bool:
        """Whether the bytes are too many for memory."""
        ...

    def whole(self) -> bytes | bytearray:
        """All bytes."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """The bytes in order, piece by piece."""
        ...

    def sha256(self) -> bytes:
        """The SHA-256 digest of the bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Bundle:
    """An uploaded bundle, its module not checked yet. `content` identifies its bytes, independent of the CID."""

    manifest: Manifest
    manifest_bytes: bytes
    wasm: Content
    content: bytes

    def check_module(self) -> None:
        """Raise `InvalidWasm` unless the module is acceptable. Takes up to seconds, and memory for two copies."""
        check_wasm(self.wasm.whole())

    def blocks(self, profile: Profile) -> Import:
        """The blocks of the UnixFS directory of both files; the root is known after the last block."""
        return Import(import_files({MANIFEST: [self.manifest_bytes], WASM: self.wasm.pieces()}, profile))


def read_bundle(manifest_bytes: bytes, wasm: Content) -> Bundle:
    """The bundle of both files. Raises `InvalidManifest`; the module is not checked."""
    manifest = read_manifest(manifest_bytes)
    parts = hashlib.sha256(manifest_bytes).digest() + wasm.sha256()
    return Bundle(manifest, manifest_bytes, wasm, hashlib.sha256(parts).digest())


def name_key(name: str) -> bytes:
    """The key by which a function is found: its name, or the beginning of one, in NFKC and case-folded, as UTF-8.

    A key begins with another in bytes exactly if it does in characters (RFC 3629). That of the longest name has 3,300
    bytes: U+FDFA becomes 33.
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    # Folding takes letters such as U+0390 apart, which their upper case is not.
    return unicodedata.normalize("NFKC", folded).encode()


def has_lasting_key(name: str) -> bool:
    """Whether every Python gives a name the same key.

    Unicode keeps the NFKC and the case folding of the characters that it has (Unicode stability policies). Of
    characters that came later, an older Python knows neither, so all have to be in Unicode 3.2.
    """
    return all(unicodedata.ucd_3_2_0.category(each) != "Cn" for each in name)


def profile_of(cid: Cid) -> Profile:
    """The UnixFS profile of a stored bundle: the two profiles differ in the CID version."""
    return UNIXFS_V0_2015 if cid.version == 0 else UNIXFS_V1_2025
