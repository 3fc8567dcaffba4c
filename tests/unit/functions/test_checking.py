"""Whose module is checked next: creators in rounds, each with one check at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from muniment.protocol.errors import InvalidWasm, TooManyUploads
from muniment.protocol.evm.address import Address
from muniment.service.resources.functions.checking import Checks

FIRST, SECOND, THIRD = (Address.from_raw(bytes((number,)) * 20) for number in (1, 2, 3))


class Upload:
    """A check that lasts until it is let go."""

    def __init__(self, began: list[Upload]) -> None:
        self._began = began
        self._may_end = threading.Event()

    def __call__(self) -> None:
        self._began.append(self)
        assert self._may_end.wait(60)

    def let_go(self) -> None:
        self._may_end.set()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_many_uploads_of_one_creator_leave_a_place_to_another() -> None:
    checks, began = Checks(2, "test", queue_seconds_max=60), list[Upload]()
    many, honest = [Upload(began) for _ in range(20)], Upload(began)
    tasks = [asyncio.create_task(checks.run(FIRST, upload)) for upload in many]
    await until(lambda: began == many[:1])
    tasks.append(asyncio.create_task(checks.run(SECOND, honest)))
    await until(lambda: began == [many[0], honest])
    for upload in (*many, honest):
        upload.let_go()
    await asyncio.gather(*tasks)
    assert began == [many[0], honest, *many[1:]]


async def test_creators_take_turns_when_all_places_are_taken() -> None:
    checks, began = Checks(1, "test", queue_seconds_max=60), list[Upload]()
    uploads = [Upload(began) for _ in range(6)]
    creators = [FIRST, FIRST, FIRST, SECOND, SECOND, THIRD]
    tasks: list[asyncio.Task[None]] = []
    for creator, upload in zip(creators, uploads, strict=True):
        tasks.append(asyncio.create_task(checks.run(creator, upload)))
        await asyncio.sleep(0)
    for upload in uploads:
        upload.let_go()
    await asyncio.gather(*tasks)
    assert [creators[uploads.index(upload)] for upload in began] == [FIRST, SECOND, THIRD, FIRST, SECOND, FIRST]


async def test_an_upload_that_waits_for_others_of_its_creator_is_refused() -> None:
    checks, began = Checks(2, "test", queue_seconds_max=0.05), list[Upload]()
    running, next_one, refused = Upload(began), Upload(began), Upload(began)
    tasks = [asyncio.create_task(checks.run(FIRST, upload)) for upload in (running, next_one, refused)]
    with pytest.raises(TooManyUploads) as told:
        await tasks[2]
    assert told.value.facts == {"retryAfter": 0}
    running.let_go()
    next_one.let_go()
    await asyncio.gather(*tasks[:2])
    assert began == [running, next_one]


async def test_a_client_that_goes_away_gives_its_place_back_when_its_check_ends() -> None:
    checks, began = Checks(1, "test", queue_seconds_max=60), list[Upload]()
    gone, waits, waits_not = Upload(began), Upload(began), Upload(began)
    tasks = [asyncio.create_task(checks.run(FIRST, gone))]
    await until(lambda: began == [gone])
    tasks += [asyncio.create_task(checks.run(SECOND, waits)), asyncio.create_task(checks.run(THIRD, waits_not))]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.wait([tasks[0], tasks[2]])
    assert began == [gone]
    gone.let_go()
    await until(lambda: began == [gone, waits])
    waits.let_go()
    await tasks[1]
    await asyncio.wait_for(checks.run(THIRD, lambda: None), 60)


async def test_a_refused_check_raises_and_frees_its_place() -> None:
    checks = Checks(1, "test")

    def refuse() -> None:
        raise InvalidWasm("no")

    for _ in range(3):
        with pytest.raises(InvalidWasm):
            await checks.run(FIRST, refuse)
    await checks.run(FIRST, lambda: None)
