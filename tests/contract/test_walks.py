"""The walk of a write through the rooms, as docs/develop/architecture.md counts it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import FrameType

import httpx2
from golden import ROOT

import muniment
from muniment.service.context import Context
from operator_client import IntentDraft, OperatorClient, operator_key

_SOURCE = f"{Path(muniment.__file__).parent}/"
_ROOMS = {"http", "running", "protocol", "resources", "storage"}
# The caller, as a parameter of the handler, and the handler; the work of the transaction.
_CALLS_UP = {("http", "resources"), ("storage", "resources")}


def _room(frame: FrameType | None) -> str | None:
    """The room of the function in a frame, else of the nearest function that waits for it."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_SOURCE):
            return file.removeprefix(_SOURCE).removeprefix("service/").partition("/")[0].removesuffix(".py")
        frame = frame.f_back
    return None


def _floors() -> list[list[str]]:
    """The rooms of the service, line by line from the top, then those below it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each.get("containers") == ["muniment.service"]]
    return [*(layer.split(" | ") for layer in layers), ["protocol"]]


async def test_a_put_of_a_new_intent_passes_few_rooms(client: httpx2.AsyncClient, context: Context) -> None:
    operator, draft = OperatorClient(client, await operator_key(context)), IntentDraft()
    path, body = f"/intents/{draft.hash}", draft.body
    calls = set[tuple[str, str]]()

    def see(frame: FrameType, event: str, _: object) -> None:
        room, caller = _room(frame), _room(frame.f_back)
        if event == "call" and room and caller and room != caller:
            calls.add((caller, room))

    sys.setprofile(see)
    try:
        answer = await client.put(path, json=body, headers=operator.headers)
    finally:
        sys.setprofile(None)
    assert answer.status_code == 200, answer.text
    floor = {room: number for number, rooms in enumerate(_floors()) for room in rooms}
    assert {room for call in calls for room in call} == _ROOMS
    assert {(caller, room) for caller, room in calls if floor[room] <= floor[caller]} == _CALLS_UP
