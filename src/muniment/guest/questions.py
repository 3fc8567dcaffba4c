"""What a module asks, read from the JSON text that it passes, and the JSON text that it is answered."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

import msgspec

from muniment.guest.outcomes import Stop
from muniment.guest.types import Answer, Question
from muniment.protocol.errors import InvalidJson
from muniment.protocol.json_text import parse_json
from muniment.protocol.runs.texts import Query


class _Shape(NamedTuple):
    """The members of a question, and what stands as `data` where it has no answer: guests parse it by its type."""

    required: frozenset[str]
    optional: frozenset[str]
    no_data: Any


_TIMESTAMP: Final = frozenset({"timestamp"})
_SHAPES: Final[dict[Query, _Shape]] = {
    "evmCall": _Shape(frozenset({"to", "chainId", "data"}), _TIMESTAMP, ""),
    "tokenPrice": _Shape(frozenset({"address", "chainId"}), _TIMESTAMP, []),
    "relevantTokens": _Shape(frozenset({"owner", "chainIds", "usdMinAmount", "tokens", "tokenFilter"}), _TIMESTAMP, []),
    "subgraph": _Shape(frozenset({"chainId", "subgraphId", "query"}), _TIMESTAMP, {"blockNumber": 0, "data": ""}),
    "svmAccountsInfo": _Shape(frozenset({"publicKeys"}), _TIMESTAMP, {"accountsInfo": [], "slot": ""}),
    "api": _Shape(frozenset({"url"}), _TIMESTAMP, ""),
}


def parse_question(query: Query, text: str) -> Question:
    """The question in a module's JSON text. Raises `Stop`.

    Numbers become decimal texts; members that are null, and a timestamp of 0, are left out.
    """
    members = parse_object(text)
    shape = _SHAPES[query]
    params = {name: _plain(name, value) for name, value in members.items() if value is not None}
    if params.get("timestamp") == "0":
        del params["timestamp"]
    if missing := shape.required - set(params):
        raise Stop("bad-argument", f"a question {query} without {' and '.join(sorted(missing))}")
    if unknown := set(params) - shape.required - shape.optional:
        raise Stop("bad-argument", f"a question {query} with an unknown member {min(unknown)[:40]!a}")
    return Question(query, params)


def parse_object(text: str) -> dict[str, Any]:
    """The object of a JSON text. Raises `Stop`."""
    try:
        value = parse_json(text.encode())
    except InvalidJson as error:
        raise Stop("bad-argument", f"expected a JSON object: {error.detail}") from error
    if not isinstance(value, dict):
        raise Stop("bad-argument", "expected a JSON object")
    return cast("dict[str, Any]", value)


def _plain(name: str, value: object) -> Any:
    """A text, a list of texts, or a list of mappings of texts, as a record of a run has them."""
    if not isinstance(value, list):
        return _plain_text(name, value)
    items = cast("list[object]", value)
    return [
        {key: _plain_text(name, part) for key, part in cast("dict[str, object]", item).items()}
        if isinstance(item, dict)
        else _plain_text(name, item)
        for item in items
    ]


def _plain_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and "\0" not in value:  # PostgreSQL cannot store U+0000
        return value
    raise Stop("bad-argument", f"the member {name[:40]!a} of a question is neither a text nor an integer")


def answer_text(query: Query, answer: Answer) -> str:
    """The JSON text that a module reads; `success` is a text, since its parser cannot read booleans."""
    shown = {
        "success": "true" if answer.success else "false",
        "data": answer.data if answer.success else _SHAPES[query].no_data,
        "error": answer.error,
    }
    return msgspec.json.encode(shown).decode()
