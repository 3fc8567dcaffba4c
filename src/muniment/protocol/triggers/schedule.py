"""The runs of a cron trigger: the five-field expression and the delta, with the meaning of the npm `cron-parser` 5.

Clients check and preview schedules with that parser. It accepts every expression that this module accepts, with the
same runs. This module refuses some others (missing fields, seconds, `@daily`, `#`, `H`). All times are UTC.

This module expands the fields to plain lists, and `cronsim` only walks the calendar, because it reads some fields in
another way (`*/2` in a day field joins day-of-month and weekday by AND, `3-3/2` means `3/2`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from cronsim import CronSim

from muniment.protocol.errors import InvalidConfig

# Far above honest expressions, whose longest have about 40 characters.
CRON_LENGTH_MAX: Final = 100
# Cached schedules: most triggers share a few.
_SCHEDULES_KEPT: Final = 1_024
# 52 weeks: a run that is a year late is of no use.
DELTA_SECONDS_MAX: Final = 52 * 7 * 86_400
# Functions give their intents a few minutes: a later run may come to nothing.
_USUAL_MINUTES: Final = 5

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000
_MONTHS: Final = {
    name: i
    for i, name in enumerate(["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], 1)
}
_WEEKDAYS: Final = {name: i for i, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])}
# The largest number of days of each month, from January; 29 February comes at least every 8 years.
_MONTH_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}

_DELTA: Final = re.compile(r"([1-9][0-9]*)([smhdw])")
_FIELDS: Final = re.compile(r"[ \t]*" + r"[ \t]+".join([r"([!-~]+)"] * 5) + r"[ \t]*")
_ITEM: Final = re.compile(
    r"(?:[*?]|(?P<first>[0-9]+|[A-Za-z]{3})(?:-(?P<last>[0-9]+|[A-Za-z]{3}))?)(?:/(?P<step>[0-9]+))?"
)
_LAST_WEEKDAY: Final = re.compile(r"([0-7]|[A-Za-z]{3})L")


class _Field(NamedTuple):
    """One of the five fields: its name in messages, its range and the names of its values."""

    name: str
    low: int
    high: int
    names: dict[str, int]


_MINUTE: Final = _Field("minute", 0, 59, {})
_HOUR: Final = _Field("hour", 0, 23, {})
_DAY: Final = _Field("day-of-month", 1, 31, {})
_MONTH: Final = _Field("month", 1, 12, _MONTHS)
_WEEKDAY: Final = _Field("weekday", 0, 7, _WEEKDAYS)
_POSITIONS: Final = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


def check_cron(text: str) -> None:
    """Check a cron expression. Raises `InvalidConfig`, also for one that never runs.

    The fields are minute, hour, day of month, month and weekday (0 or 7 is Sunday), with names, steps, ranges, lists,
    `?` and `L` (last day of the month; `5L` is the last Friday). A day field is given unless it is `*` or `?`; if both
    are given, a day needs to match only one of them (POSIX crontab, and `cron-parser`).
    """
    _plain(text)


def next_runs(text: str, after_ms: int, count: int, end_ms: int = 0) -> list[int]:
    """The first `count` runs strictly after `after_ms`, in milliseconds since 1970 (UTC), ascending.

    There may be fewer: runs end at `end_ms` (0: without an end), and with the year 9999, where the calendar of the
    standard library ends. Raises `InvalidConfig`.
    """
    return _walked(_plain(text), after_ms, count, end_ms)


def _walked(plain: str, after_ms: int, count: int, end_ms: int) -> list[int]:
    """The same of a plain schedule, which may be longer than one that is accepted."""
    runs: list[int] = []
    try:
        walk = CronSim(plain, _EPOCH + timedelta(milliseconds=after_ms))
        while len(runs) < count:
            run_ms = (next(walk) - _EPOCH) // timedelta(milliseconds=1)
            if end_ms and run_ms > end_ms:
                break
            runs.append(run_ms)
    except (OverflowError, ValueError):  # past the year 9999, as far as datetime goes
        return runs
    return runs


def usual_delta(text: str) -> str:
    """The shortest time between two minutes of a schedule, at most `5m`. Raises `InvalidConfig`.

    A run may be late by so much unless its owner says otherwise: then one tick at a time can run.
    """
    plain = _plain(text).split()[0]
    minutes = set(range(60) if plain == "*" else map(int, plain.split(",")))
    steps = (step for step in range(1, _USUAL_MINUTES) if any((each + step) % 60 in minutes for each in minutes))
    return f"{next(steps, _USUAL_MINUTES)}m"


def last_run(text: str, at_ms: int) -> int | None:
    """The newest run at or before `at_ms`, in milliseconds since 1970 (UTC). Raises `InvalidConfig`.

    None: there is none since 1970.
    """
    runs = last_runs(text, at_ms, 1)
    return runs[0] if runs else None


def last_runs(text: str, at_ms: int, count: int, after_ms: int = -1) -> list[int]:
    """The newest `count` runs at or before `at_ms` and after `after_ms`, in milliseconds since 1970 (UTC), ascending.

    There may be fewer, and none is before 1970. Raises `InvalidConfig`.
    """
    plain = _plain(text)
    runs: list[int] = []
    try:
        # The walk begins strictly before its start, and runs are whole minutes.
        walk = CronSim(plain, _EPOCH + timedelta(minutes=at_ms // _MINUTE_MS + 1), reverse=True)
        while len(runs) < count:
            run_ms = (next(walk) - _EPOCH) // timedelta(milliseconds=1)
            if run_ms <= after_ms:
                break
            runs.append(run_ms)
    except (OverflowError, ValueError, StopIteration):  # past the year 9999, as far as datetime goes, or 50 years back
        pass
    return runs[::-1]


def count_runs(text: str, after_ms: int, until_ms: int) -> int:
    """The number of runs after `after_ms`, and up to `until_ms` included. Raises `InvalidConfig`.

    It walks the days and not the runs, since a schedule has the same times on each of its days (UTC).
    """
    if until_ms <= after_ms:
        return 0
    minute, hour, *days = _plain(text).split(" ")
    minutes, hours = _numbers(minute, 60), _numbers(hour, 24)
    times = sorted(each_hour * 60 + each for each_hour in hours for each in minutes)
    first, last = after_ms // _DAY_MS, until_ms // _DAY_MS
    count = 0
    for midnight_ms in _walked(" ".join(["0", "0", *days]), first * _DAY_MS - 1, last - first + 1, until_ms):
        day = midnight_ms // _DAY_MS
        since = bisect_right(times, after_ms % _DAY_MS // _MINUTE_MS) if day == first else 0
        up_to = bisect_right(times, until_ms % _DAY_MS // _MINUTE_MS) if day == last else len(times)
        count += up_to - since
    return count


def _numbers(field: str, count: int) -> list[int]:
    """The values of a plain field that has `count` possible ones from 0."""
    return [*range(count)] if field == "*" else [int(each) for each in field.split(",")]


def check_delta(text: str) -> int:
    """The seconds of a delta such as `90s`, `15m`, `1h`, `1d`, `2w`: from 1 to 52 weeks. Raises `InvalidConfig`."""
    match = _DELTA.fullmatch(text)
    if not match:
        raise InvalidConfig("delta is a positive integer and one of s, m, h, d, w, such as 15m")
    digits, unit = match.groups()
    # The length first: int() of thousands of digits is slow, and Python refuses even more digits.
    seconds = int(digits) * _UNIT_SECONDS[unit] if len(digits) <= len(str(DELTA_SECONDS_MAX)) else None
    if seconds is None or seconds > DELTA_SECONDS_MAX:
        raise InvalidConfig("delta is at most 52w")
    return seconds


@lru_cache(maxsize=_SCHEDULES_KEPT)
def _plain(text: str) -> str:
    """The same schedule with each field as a plain list, or as `*` for every value."""
    if len(text) > CRON_LENGTH_MAX:
        raise InvalidConfig(f"schedule has at most {CRON_LENGTH_MAX} characters")
    match = _FIELDS.fullmatch(text)
    if not match:
        raise InvalidConfig("schedule is a cron expression of five fields: minute hour day-of-month month weekday")
    minute, hour, day, month, weekday = (
        _expand(field, part) for field, part in zip(_POSITIONS, match.groups(), strict=True)
    )
    _check_days_exist(day, month, weekday)
    return " ".join(",".join(values) or "*" for values in (minute, hour, day, month, weekday))


def _check_days_exist(days: list[str], months: list[str], weekdays: list[str]) -> None:
    """Refuse days that the months do not have, such as 30 February, unless a weekday is given too.

    Every other expression runs at least every 8 years (the longest gap is from 29 February 2096 to 2104), so this need
    not search the calendar.
    """
    if not days or "L" in days or weekdays:
        return
    longest = max((_MONTH_LENGTHS[int(month) - 1] for month in months), default=31)
    if min(int(day) for day in days) > longest:
        raise InvalidConfig("schedule never runs: no month in it has such a day")


def _expand(field: _Field, part: str) -> list[str]:
    """The values of one field for `cronsim`; an empty list for `*` or `?`: every value."""
    if part in {"*", "?"}:
        return []
    values: list[str] = []
    for item in part.split(","):
        expanded = _expand_item(field, item)
        if not set(values).isdisjoint(expanded):
            # As in cron-parser; a repeated value is most likely a mistake.
            raise InvalidConfig(f"schedule gives a {field.name} twice in {part!r}")
        values += expanded
    return values


def _expand_item(field: _Field, item: str) -> list[str]:
    """The values of one item of a list: `7`, `1-5`, `*/2`, `10-40/5`, `MON`, `L`, `5L`."""
    if field is _DAY and item == "L":
        return ["L"]
    if field is _WEEKDAY and (last := _LAST_WEEKDAY.fullmatch(item)):
        return [f"{_number(field, last[1]) % 7}L"]
    match = _ITEM.fullmatch(item)
    if not match:
        raise InvalidConfig(f"schedule has {item!r} as {field.name}, which is not a value, a range or a step")
    first, last, step = match.group("first", "last", "step")
    low = field.low if first is None else _number(field, first)
    high = low if last is None else _number(field, last)
    if first is None or (step is not None and last is None):
        high = field.high  # `5/15` means from 5 on
    if high < low:
        raise InvalidConfig(f"schedule has the {field.name} range {item!r}, which ends before it begins")
    if step is not None and int(step) == 0:
        raise InvalidConfig(f"schedule has a step of 0 as {field.name}")
    numbers = range(low, high + 1, int(step or 1))
    # 7 is Sunday, like 0; a dict keeps the order, and each value once.
    return list(dict.fromkeys(str(number % 7 if field is _WEEKDAY else number) for number in numbers))


def _number(field: _Field, text: str) -> int:
    """A value of `field`, given in digits or by name."""
    number = int(text) if text.isdigit() else field.names.get(text.upper())
    if number is None or not field.low <= number <= field.high:
        raise InvalidConfig(f"schedule has {text!r} as {field.name}, which is not from {field.low} to {field.high}")
    return number
