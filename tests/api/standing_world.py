"""A registry that stands for all tests of a module, which only read it: on each engine it is filled once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from shutil import copy2

import httpx2
import pytest

from applications import PATIENT, client_of, wait_for_postgres
from conftest import Clock
from feed_checks import check_events
from limitless import unlimited_settings
from muniment.service.app import Application, build_context
from muniment.service.context import Context
from muniment.service.running.settings import Settings

ENGINES = ["sqlite", "postgres"]


@dataclass(frozen=True)
class Standing:
    """A registry in this process, its clock, and a client whose answers are compared with the OpenAPI document."""

    context: Context
    client: httpx2.AsyncClient
    clock: Clock


@asynccontextmanager
async def standing_registry(request: pytest.FixtureRequest, *, spoils_events: bool = False) -> AsyncGenerator[Standing]:
    """An empty one on the engine that the parameter of a fixture names, for the fixture's module.

    At the end the events must tell what the tables hold, unless rows are filled in by SQL (`spoils_events`).
    """
    folder = request.getfixturevalue("tmp_path_factory").mktemp("standing")
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o700)
    url = Settings().database_url
    if request.param == "postgres":  # a process of the tests may come back to a module
        url = await request.getfixturevalue("cluster").create_migrated(folder.name)
    else:
        copy2(request.getfixturevalue("migrated_file"), data_dir)
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        wait_for_postgres(patch)
        settings = unlimited_settings(data_dir=data_dir, database_url=url, log_level="warning")
        context = build_context(settings, now_ms=clock, database_limits=PATIENT)
        try:
            async with client_of(Application(context)) as client:
                yield Standing(context, client, clock)
            if not spoils_events:
                await check_events(context.database)
        finally:
            await context.outgoing.close()
            await context.outgoing_webhooks.close()
            await context.database.close()
