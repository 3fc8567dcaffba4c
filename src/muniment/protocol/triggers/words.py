"""Schedules, times and fee limits in words. Pure."""

from __future__ import annotations

from typing import Final

from muniment.protocol.wire import DATED_MS_MAX, iso_time, moment

_UNITS: Final = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS: Final = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
_WEEKDAYS: Final = {
    **{str(number): f"on {name}" for number, name in enumerate(_DAYS)}, "1-5": "on Mondays to Fridays",
}  # fmt: skip
_DAYS_OF_EVERY_MONTH: Final = 28
# `executionFeeLimit` is in US dollars × 10^18.
_DECIMALS_OF_FEES: Final = 18


def fee_in_words(limit: str) -> str:
    """A fee limit other than 0 in US dollars, then as it was signed: "0.05 US dollars (50000000000000000)"."""
    whole, rest = divmod(int(limit), 10**_DECIMALS_OF_FEES)
    dollars = f"{whole}.{rest:0{_DECIMALS_OF_FEES}d}".rstrip("0").rstrip(".")
    return f"{dollars} US dollar{'' if dollars == '1' else 's'} ({limit})"


def delta_in_words(delta: str) -> str:
    """`10m` as `10 minutes`."""
    return f"{delta[:-1]} {_UNITS[delta[-1]]}{'' if delta[:-1] == '1' else 's'}"


def time_in_words(timestamp_ms: int) -> str:
    """`20 November 2026, 21:48 UTC`, with seconds and milliseconds where there are any, since an owner signs them."""
    if timestamp_ms > DATED_MS_MAX:
        return moment(timestamp_ms)
    iso = iso_time(timestamp_ms)
    time = iso[11:-1].removesuffix(".000").removesuffix(":00")
    return f"{int(iso[8:10])} {_MONTHS[int(iso[5:7]) - 1]} {iso[:4]}, {time} UTC"


def schedule_in_words(schedule: str) -> str:
    """Common schedules in words, such as `every day at 09:30`; empty for other schedules."""
    minute, hour, day, month, weekday = schedule.split()
    if month != "*":
        return ""
    if day == weekday == "*":
        return _through_a_day(minute, hour)
    if not (_is_number(minute) and _is_number(hour)):
        return ""
    at = f"at {int(hour):02}:{int(minute):02}"
    if weekday == "*" and _is_number(day) and int(day) <= _DAYS_OF_EVERY_MONTH:
        return f"on day {int(day)} of each month {at}"
    return f"{_WEEKDAYS[weekday]} {at}" if day == "*" and weekday in _WEEKDAYS else ""


def _through_a_day(minute: str, hour: str) -> str:
    if hour == "*" and not _is_number(minute):
        return _every(minute, 60, "minute")
    if not _is_number(minute):
        return ""
    if _is_number(hour):
        return f"every day at {int(hour):02}:{int(minute):02}"
    every = _every(hour, 24, "hour")
    return f"{every} at minute {int(minute)}" if every and int(minute) else every


def _every(field: str, whole: int, unit: str) -> str:
    """`*/15` of 60 minutes as `every 15 minutes`.

    A step that does not divide the whole has no words: the interval at the end of an hour or day is shorter.
    """
    if field == "*":
        return f"every {unit}"
    first, _, step = field.partition("/")
    if first != "*" or not _is_number(step) or int(step) == 0 or whole % int(step):
        return ""
    return f"every {unit}" if int(step) == 1 else f"every {int(step)} {unit}s"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()
