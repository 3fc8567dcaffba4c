"""No shape has a text with a pattern in a union with a list, dict or set.

msgspec 0.22 frees such a pattern as if it were a type, which can end a process by a segmentation fault (msgspec #717).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import msgspec
from msgspec import inspect

import muniment

_BESIDE = (inspect.CollectionType, inspect.DictType)


def inside(value: object) -> Iterator[inspect.UnionType]:
    """The unions in what msgspec tells about a type."""
    if isinstance(value, inspect.UnionType):
        yield value
    if isinstance(value, tuple):
        for each in value:
            yield from inside(each)
    elif isinstance(value, inspect.Type | inspect.Field):
        for name in value.__struct_fields__:
            yield from inside(getattr(value, name))


def are_freed_wrongly(shown: inspect.Type) -> bool:
    return any(
        any(isinstance(each, inspect.StrType) and each.pattern for each in union.types)
        and any(isinstance(each, _BESIDE) for each in union.types)
        for union in inside(shown)
    )


def shapes() -> set[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(muniment.__path__, "muniment."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    found = set(msgspec.Struct.__subclasses__())
    while inner := {each for kind in found for each in kind.__subclasses__()} - found:
        found |= inner
    return {each for each in found if each.__module__.startswith("muniment.")}


def test_no_text_with_a_pattern_is_in_a_union_with_a_list() -> None:
    every = shapes()
    assert len(every) > 100
    assert [each for each in every if are_freed_wrongly(inspect.type_info(each))] == []


def test_the_search_finds_one() -> None:
    text, number = inspect.StrType(pattern="a"), inspect.IntType()
    beside = inspect.UnionType((text, inspect.NoneType(), inspect.DictType(number, number)))
    assert are_freed_wrongly(inspect.ListType(inspect.DictType(number, beside)))
    assert are_freed_wrongly(inspect.UnionType((text, inspect.ListType(number))))
    assert not are_freed_wrongly(inspect.UnionType((text, number)))
    assert not are_freed_wrongly(inspect.UnionType((inspect.StrType(), inspect.ListType(text))))
