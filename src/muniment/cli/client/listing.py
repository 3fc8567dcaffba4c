"""Lists of a registry's records: the newest first, and as many as were asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from muniment.cli.output import Column, is_for_programs, print_note, show_all, table_options

if TYPE_CHECKING:
    from muniment.client.sync import Pages
    from muniment.protocol.intents.types import AnyIntent
    from muniment.protocol.runs.types import Run


T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
_LIMIT: Final = 30
# Records of a page: what the service gives at most.
_PAGE_MAX: Final = 100


def list_options(command: Command) -> Command:
    """Add `--limit`, `--all`, `--json` and `--whole`; `show_newest` takes their values."""
    every = click.option("--all", "every", is_flag=True, help="Print all of them.")
    limit = click.option("--limit", type=click.IntRange(1), help=f"How many to print; default: {_LIMIT}.")
    return limit(every(table_options(command)))


def sum_up(records: Iterable[AnyIntent | Run]) -> str:
    """How many of these intents or runs were not carried out, and why; empty if none."""
    from muniment.protocol.runs.outcomes import Tally, is_lost, why_intent_undone
    from muniment.protocol.runs.types import Run

    tally, noun = Tally(), "intent"
    for each in records:
        if isinstance(each, Run):
            reason, noun = each.reason.code if each.reason else None, "run"
            tally.add_run(each.result, reason, is_lost=is_lost(each, now_ms()))
        else:
            tally.add_intent(why_intent_undone(each))
    return tally.words(noun)


def now_ms() -> int:
    """The time of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def show_newest(
    read: Callable[[int], Pages[T]],
    columns: Sequence[Column],
    *,
    limit: int | None,
    every: bool,
    as_json: bool | None,
    whole: bool,
    empty: str,
    complete: Callable[[T], T | None] | None = None,
) -> list[T]:
    """Print the newest records of a listing, and return those that were printed for people, unless `every` one was.

    `read` gets the size of its pages. Where neither `limit` nor `every` was given and there are more, a line on
    standard error says so. JSON of `every` record has all members: `complete` adds those that a listing leaves out.
    None: the record has gone since.
    """
    if every and limit is not None:
        raise click.UsageError("give --limit or --all, not both")
    most, has_more = None if every else limit or _LIMIT, False

    def newest() -> Iterator[T]:
        nonlocal has_more
        count = 0
        for page in read(min(most or _PAGE_MAX, _PAGE_MAX)).pages():
            taken = page if most is None else page[: most - count]
            yield from taken
            count += len(taken)
            if count == most:
                has_more = len(taken) < len(page) or page.cursor is not None
                return

    records: Iterable[T] = newest()
    if complete is not None and every and is_for_programs(as_json):
        records = (record for each in records if (record := complete(each)) is not None)
    printed: list[T] = []
    if not (every or is_for_programs(as_json)):
        records = printed = [*records]
    show_all(records, columns, as_json=as_json, empty=empty, fits=not whole)
    if has_more and limit is None:
        print_note(f"These are the newest {_LIMIT}; --limit N or --all prints more.")
    return printed
