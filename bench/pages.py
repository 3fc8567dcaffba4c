"""A page of triggers among a thousand and among all of them, in process, taking turns."""

from __future__ import annotations

import asyncio
from pathlib import Path

from in_process import micros_of, unlimited
from muniment.app import Application, build_context
from muniment.http.paging import cursor_after
from samples import SIGNER
from scale import Scale

FEW = 1_000
FIRST_OF_FEW = "the first of a thousand"
FIRST, MIDDLE, LAST = "the first of all", "by cursor, in the middle", "by cursor, near the end"
OF_SIGNER_OF_FEW, OF_SIGNER = "a signer's newest, of a thousand", "a signer's newest, of all"

# Page to microseconds of each round.
Micros = dict[str, list[float]]


def measure(scale: Scale, few_dir: Path, many_dir: Path) -> Micros:
    """The CPU time of a page of ten from request to answer."""
    return asyncio.run(_compare(scale, few_dir, many_dir))


async def _compare(scale: Scale, few_dir: Path, many_dir: Path) -> Micros:
    contexts = [build_context(unlimited(each)) for each in (few_dir, many_dir)]
    few, many = (Application(context) for context in contexts)
    of_signer = f"/triggers?signer={SIGNER}&limit=10"
    targets = {
        FIRST_OF_FEW: (few, "/triggers"),
        FIRST: (many, "/triggers"),
        MIDDLE: (many, await _behind(many, 2)),
        LAST: (many, await _behind(many, 1.01)),
        OF_SIGNER_OF_FEW: (few, of_signer),
        OF_SIGNER: (many, of_signer),
    }
    micros: Micros = {name: [] for name in targets}
    for number in range(scale.rounds + 1):
        for name, (app, target) in targets.items():
            taken = await micros_of(app, target)
            if number:  # the first round warms up
                micros[name].append(taken)
    for context in contexts:
        await context.database.close()
    return micros


async def _behind(app: Application, part: float) -> str:
    """The page behind the row that is one `part`-th down the table; a cursor made here, for a deep offset is slow."""
    rows = await app.context.database.fetch("SELECT max(seq) FROM triggers")
    cursor = cursor_after("triggers", rows[0][0] - int(rows[0][0] / part), None)
    return f"/triggers?cursor={cursor.decode()}"
