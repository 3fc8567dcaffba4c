"""The states of an epoch: only the steps of the drawing change them, and only a checked epoch grows or is shown."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from tlog_world import KEY, epoch_of, turn

from conftest import Clock
from muniment.protocol.log.tiles import EMPTY, grow
from muniment.protocol.log.types import State
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.resources.log.store import STEPS, Batch, Checked, Epoch, Overtaken
from muniment.service.running.settings import Settings

ROOT = Path(__file__).parents[2]
ARROW = re.compile(r"^    (\S+) --> (\w+): (.+)$", re.MULTILINE)
STATES: tuple[State, ...] = get_args(State)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name="registry.example", tlog_key=KEY)


def test_the_drawing_has_every_step() -> None:
    page = ROOT / "docs" / "develop" / "database.md"
    drawn = {
        (step, before, after)
        for before, after, steps in ARROW.findall(page.read_text("utf-8"))
        for step in steps.split(", ")
    }
    coded = {(step, before, after) for step, pairs in STEPS.items() for before, after in pairs}
    assert drawn == coded | {("begin", "[*]", "open")}


def steps_to(state: State, epoch: Epoch, checked: Checked, batch: Batch) -> dict[str, Callable[[Any], Awaitable[Any]]]:
    """The steps that may bring an epoch into `state`."""
    new = msgspec.structs.replace(epoch, epoch=2, origin="registry.example/log/2", state="open")
    steps: dict[str, Callable[[Any], Awaitable[Any]]] = {
        "append": lambda tx: store.append(tx, checked, batch),
        "publish": lambda tx: store.publish(tx, checked, "a later note"),
        "begin_closing": lambda tx: store.begin_closing(tx, checked),
        "freeze": lambda tx: store.freeze(tx, epoch, "why"),
        "halt": lambda tx: store.halt(tx, epoch, "why"),
        "resume": lambda tx: store.resume(tx, checked, state, "another place"),
        "begin": lambda tx: store.begin(tx, new, EMPTY),
    }
    assert steps.keys() == STEPS.keys()
    return steps


async def test_a_step_changes_the_states_that_are_drawn_and_no_other(context: Context, clock: Clock) -> None:
    began = await turn(context, clock)
    edge = await store.read_edge(context.database, began)

    async def set_back(state: str) -> None:
        async def work(transaction: Any) -> None:
            for table in ("tlog_epochs", "tlog_cursors", "tlog_tail"):
                await transaction.execute(f"DELETE FROM {table} WHERE epoch = 2")
            await transaction.execute("DELETE FROM tlog_tail WHERE leaf_index >= ?", (began.size,))
            await transaction.execute(
                "UPDATE tlog_epochs SET state = ?, why = NULL, place = ?, size = ?, root = ?, note = ?",
                (state, began.place, began.size, began.root, began.note),
            )

        await context.database.write(work)

    for before in STATES:
        for after in STATES:
            for step in STEPS:
                await set_back(before)
                epoch = await epoch_of(context)
                batch = Batch(grow(edge, [b"an entry"]), epoch.after, epoch.backfilled, [])
                with suppress(Overtaken):
                    await context.database.write(steps_to(after, epoch, Checked(epoch, edge), batch)[step])
                found = await store.find_epoch(context.database, 1)
                assert found
                allowed = {state for at, state in STEPS[step] if at == before}
                if step == "resume":
                    allowed &= {after}
                assert found.state in (allowed or {before}), (step, before)
                assert (found != epoch) == bool(allowed), (step, before, after)


def test_only_the_store_writes_states_and_only_a_check_makes_a_checked_epoch() -> None:
    made = list[str]()
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text("utf-8")
        if path.name != "store.py":
            assert not re.search(r"tlog_epochs\s+SET(?! place = )", text), path
        if "Checked" not in text:
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
                made += [f"{path.stem}.{function.name}" for call in calls if ast.unparse(call) == "Checked"]
    assert made == ["checking.check", "store.append"]
    for step in (store.append, store.publish, store.begin_closing, store.resume):
        assert inspect.signature(step).parameters["checked"].annotation == "Checked"
