"""Records that have several forms, such as the two generations of intents: which form a JSON object has.

The members that only one form has decide which form an object has. A handler's signature names both forms as `A | B`.
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from types import UnionType
from typing import Any, Final, Union, cast, get_args, get_origin

import msgspec

from muniment.protocol.errors import InvalidBody
from muniment.protocol.wire import Record, decode_text, refusal_of

_preparing: Final = Lock()


@cache
def prepare(kind: Any) -> None:
    """Let msgspec read the annotations of `kind`, and of the structs in it, before it decodes one.

    msgspec does that when it first decodes one. Two threads that do it at once end the process by a segmentation fault.
    """
    with _preparing:
        msgspec.json.Decoder(kind)


@cache
def forms_of(kind: object) -> tuple[type[Record], ...]:
    """The records that `A | B` joins; nothing for any other type, and for a record that may be None."""
    members = get_args(kind) if get_origin(kind) in (UnionType, Union) else ()
    is_record = [isinstance(each, type) and issubclass(each, Record) for each in members]
    return members if members and all(is_record) else ()


def decode_record(value: object, kind: Any) -> Any:
    """JSON values as a record of `kind`, or of the form that they have where `kind` is `A | B`.

    Raises `InvalidBody` that names all forms for an object with members of several forms or of none, and the refusal of
    the member that is wrong.
    """
    forms = forms_of(kind)
    form = _form(value, forms) if forms else kind
    prepare(form)
    try:
        return msgspec.convert(value, form, dec_hook=decode_text)
    except msgspec.ValidationError as error:
        raise refusal_of(error) from error


@cache
def own_members(forms: tuple[type[Record], ...], index: int) -> tuple[str, ...]:
    """The members that only the form at `index` has, in their order."""
    others = {name for n, each in enumerate(forms) if n != index for name in each.__struct_encode_fields__}
    return tuple(name for name in forms[index].__struct_encode_fields__ if name not in others)


def _form(value: object, forms: tuple[type[Record], ...]) -> type[Record]:
    index = _index(value, forms, "")
    if isinstance(value, dict):
        for name, inner in forms[index].forms_inside.items():
            listed = cast("dict[str, Any]", value).get(name)
            for n, each in enumerate(cast("list[Any]", listed) if isinstance(listed, list) else []):
                pointer = f"/{name}/{n}"
                if isinstance(each, dict) and _index(cast("object", each), inner, pointer) != index:
                    raise InvalidBody(f"not the form of the rest: {_choice(inner)}", pointer=pointer)
    return forms[index]


def _index(value: object, forms: tuple[type[Record], ...], pointer: str) -> int:
    if not isinstance(value, dict):
        return 0  # decoding it says what is wrong
    members = cast("dict[str, Any]", value).keys()
    found = [n for n in range(len(forms)) if not members.isdisjoint(own_members(forms, n))]
    if len(found) != 1:
        fault = "members of more than one form" if found else "the members of no form"
        raise InvalidBody(f"{fault}: {_choice(forms)}", pointer=pointer)
    return found[0]


def _choice(forms: tuple[type[Record], ...]) -> str:
    """The choice of members, for messages: `either op, user or feePayer, operations`."""
    return "an object has either " + " or ".join(", ".join(own_members(forms, n)) for n in range(len(forms)))
