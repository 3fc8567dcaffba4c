"""Fixtures: the application in process with a clock that stands still, and the service as a process."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, LiteralString

import httpcore2
import httpx2
import pytest
import structlog
import uvloop
from hypothesis import HealthCheck, settings as hypothesis_settings

from applications import PATIENT, client_of, wait_for_postgres
from emptying import Emptying
from feed_checks import check_events
from lent_blocks import LentBlocks
from limitless import unlimited_settings
from memory_disk import use_memory
from migrated import migrated_sqlite
from muniment.chains import token_lists, tokens
from muniment.service.app import Application, build_context
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from muniment.service.storage import open_database
from muniment.service.storage.database import DatabaseLimits
from patience import wait_a_minute, wait_for_servers
from postgres import Cluster
from service import Service

# Fixtures of tests that spoil a service and its server: beside this file, since modules share the name `conftest`.
pytest_plugins = ["sites", "browser_site", "page_site", "witnessed"]

# 2026-11-20T19:48:00.123Z
NOW_MS = 1_795_204_080_123

_TESTS = Path(__file__).parent
_TEMPORARY_FILES = use_memory()
wait_a_minute()
wait_for_servers()


def pytest_report_header() -> str:
    """Where the files of this run are."""
    return _TEMPORARY_FILES


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the collector of garbage: they last, and looking at them again takes a second.

    Afterwards it looks less often than by default: that saves a twentieth of the CPU of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(20_000, 20, 20)


# The fixtures that start a PostgreSQL server.
_CLUSTERS = {"cluster", "own_cluster", "primary", "servers"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start PostgreSQL, and spread the files of each folder evenly over the run.

    So tests that wait for processes run beside tests that compute, until the end.
    """
    folders: dict[str, dict[Path, None]] = {}
    for item in items:
        if _CLUSTERS & {*getattr(item, "fixturenames", ())}:
            item.add_marker("programs")
        folders.setdefault(item.path.relative_to(_TESTS).parts[0], {})[item.path] = None
    places = {path: (number + 0.5) / len(paths) for paths in folders.values() for number, path in enumerate(paths)}
    items.sort(key=lambda item: places[item.path])  # stable: a module stays whole, and in its order


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that a coroutine test runs on: for `api` that of the service, which saves some CPU.

    Tests of other folders have servers and proxies of their own, which lean on asyncio's transports.
    """
    is_api = item.path.relative_to(_TESTS).parts[0] == "api"
    return {"loop": uvloop.new_event_loop if is_api else asyncio.new_event_loop}


# Examples are the same in every run, and a slow machine is no failure. `make test-long` names the profile with more.
for _profile, _examples in {"quick": 20, "long": 300}.items():
    hypothesis_settings.register_profile(
        _profile, deadline=None, derandomize=True, max_examples=_examples,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
hypothesis_settings.load_profile("quick")


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.default_int_handler(number, frame)


# A shell starts what runs in its background with SIGINT ignored, which every process under test would inherit. And
# `asyncio.Runner` replaces Python's own handler, but no other, at each of the five times that it runs for a test: a
# millisecond of a core.
signal.signal(signal.SIGINT, _interrupt)

# Neither is a disk that stands still for a while: a client waits longer than the five seconds of httpx2.
for _phase in ("connect", "read", "write", "pool"):
    setattr(httpx2._config.DEFAULT_TIMEOUT_CONFIG, _phase, 60.0)

# Each client reads the certificates of this machine, which takes 24 ms of a core: more than most tests.
_read_certificates: Callable[..., ssl.SSLContext] = httpcore2.default_ssl_context


@cache
def _certificates(_file: str | None, _folder: str | None, **given: Any) -> ssl.SSLContext:
    return _read_certificates(**given)


def _certificates_as_set(**given: Any) -> ssl.SSLContext:
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"), **given)


_httpcore: Any = httpcore2
_httpcore.default_ssl_context = _certificates_as_set

# With each request in process httpx2 looks for this package, which is not there: a twentieth of a test's time.
sys.modules["sniffio"] = None  # pyright: ignore[reportArgumentType] - how an import is refused (reference, 5.3.1)

# A client parses each URL three times, letter by letter: half the time of a request with many signatures.
_urls: Any = httpx2._urls
_urls.urlparse = lru_cache(2_048)(_urls.urlparse)

# Each registry in process reads the list of tokens that comes with the package, which takes 2 ms.
_read_tokens = token_lists._read
_read_packaged = cache(_read_tokens)


def _tokens(path: Path) -> list[token_lists.Token]:
    return list(_read_packaged(path)) if path == tokens.PACKAGED_LIST else _read_tokens(path)


token_lists._read = _tokens

# A command configures the logs of its process, and each logger keeps how it was first used: here that would be seen by
# whatever test comes next.
_configure_logs: Callable[..., None] = structlog.configure


def _configure_logs_uncached(**given: Any) -> None:
    _configure_logs(**{**given, "cache_logger_on_first_use": False})


_structlog: Any = structlog
_structlog.configure = _configure_logs_uncached


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - pytest uses it for every test
    yield
    structlog.reset_defaults()


@dataclass
class Clock:
    """The injected time; a test moves it."""

    now_ms: int = NOW_MS

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0) -> None:
        self.now_ms += int((seconds + minutes * 60 + hours * 3600) * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def migrated_file() -> Path:
    """An SQLite file with every migration and no row, to copy."""
    return migrated_sqlite()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of this test process."""
    with Cluster() as started:
        yield started


@pytest.fixture(scope="session")
def migrated_database(cluster: Cluster) -> str:
    """The URL of a PostgreSQL database with every migration."""

    async def migrated() -> str:
        url = await cluster.create_database("migrated")
        database = open_database(url, data_dir=Path())
        await database.migrate()
        await database.close()
        return url

    return asyncio.run(migrated())


@pytest.fixture(scope="session")
def emptying(migrated_database: str) -> Iterator[Emptying]:
    """Empties the migrated PostgreSQL database."""
    with Emptying(migrated_database) as made:
        yield made


@pytest.fixture
def postgres_url(migrated_database: str, emptying: Emptying, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a PostgreSQL database with every migration and no row, for which this process waits a minute."""
    wait_for_postgres(monkeypatch)
    emptying()
    return migrated_database


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The engines on which a test of the API runs.

    Rows, their order, pages, concurrency and faults are shown on both engines. What is decided before a row is read or
    written (decoders, signatures, types, sizes, formats of answers, access by the form of a credential) is one code for
    both: such a test has the mark `one_engine` and runs on SQLite. A `parametrize` with `database_url` says it itself.
    """
    definition = metafunc.definition
    says = [mark for mark in definition.iter_markers("parametrize") if "database_url" in mark.args[0]]
    if "database_url" not in metafunc.fixturenames or definition.path.parent.name != "api" or says:
        return
    engines = ["sqlite", "postgres"]
    if definition.get_closest_marker("one_engine") is not None:
        engines = ["sqlite"]
    metafunc.parametrize("database_url", engines, indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """Where the application under test keeps its rows: a migrated database of the engine that the parameter names."""
    engine: str = getattr(request, "param", "sqlite")
    return Settings().database_url if engine == "sqlite" else request.getfixturevalue(f"{engine}_url")


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    """The settings of the application under test; a test module may override this fixture."""
    return unlimited_settings(data_dir=tmp_path / "data", database_url=database_url, log_level="warning")


@pytest.fixture
def database_limits() -> DatabaseLimits:
    """The limits of the database under test; a test that needs others gives its own as a parameter."""
    return PATIENT


@pytest.fixture(scope="session")
def lent_blocks(tmp_path_factory: pytest.TempPathFactory) -> LentBlocks:
    """The directories of a block store, for one test after the other."""
    return LentBlocks(tmp_path_factory.mktemp("lent"))


@pytest.fixture
def fresh_files(settings: Settings, migrated_file: Path, lent_blocks: LentBlocks) -> Iterator[None]:
    """The files of a registry on SQLite that has just been made, without the time that it takes to make them."""
    if settings.database_url != Settings().database_url:
        yield
        return
    settings.data_dir.mkdir(mode=0o700, exist_ok=True)
    shutil.copy2(migrated_file, settings.data_dir)
    blocks = settings.data_dir / "blocks"
    is_new = not settings.blocks_url and lent_blocks.lend(blocks)
    yield
    if is_new:
        lent_blocks.take_back(blocks)


@pytest.fixture
async def context(
    request: pytest.FixtureRequest,
    settings: Settings,
    clock: Clock,
    database_limits: DatabaseLimits,
    fresh_files: None,  # noqa: ARG001 - it makes them
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Context]:
    """The outside world of the application. Each test ends with a look at the events: they tell what the tables hold.

    A test that writes rows as no release does, or removes some, says so by the mark `spoils_events`.
    """
    wait_for_postgres(monkeypatch)
    made = build_context(settings, now_ms=clock, database_limits=database_limits)
    yield made
    try:
        if request.node.get_closest_marker("spoils_events") is None:
            session = Emptying.at(settings.database_url)
            await (session.check_events() if session is not None else check_events(made.database))
    finally:
        await made.outgoing.close()
        await made.outgoing_webhooks.close()
        await made.database.close()


@pytest.fixture
def app(context: Context) -> Application:
    return Application(context)


@pytest.fixture
async def client(app: Application) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the application in process. Each of its answers is compared with the OpenAPI document."""
    async with client_of(app) as made:
        yield made


async def stored(context: Context) -> dict[str, Any]:
    """Everything that is stored: every row of every table, and the name of every file among the blocks."""
    session = Emptying.at(context.settings.database_url)
    rows = await (_rows_of(context) if session is None else session.rows())
    return {**rows, "files": list(_files_below(f"{context.settings.data_dir}/blocks"))}


async def _rows_of(context: Context) -> dict[str, Any]:
    tables = await context.database.fetch(
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        if context.settings.database_url.startswith("sqlite")
        else "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
    )
    names: list[LiteralString] = [name for (name,) in tables]
    return {name: await context.database.fetch(f"SELECT * FROM {name} ORDER BY 1") for name in names}


def _files_below(folder: str) -> Iterator[str]:
    """The files in a directory of blocks. Directories in which nothing was written since they were emptied have none.

    They are 256, whose lists take most of a test's time.
    """
    with suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in sorted(found, key=lambda each: each.name):
            if not entry.is_dir():
                yield entry.path
            elif entry.stat().st_mtime_ns != LentBlocks.EMPTIED_NS:
                yield from _files_below(entry.path)


@pytest.fixture
def nothing_stored(context: Context) -> Callable[[], Any]:
    """`async with nothing_stored():` fails when what is inside stores, changes or removes anything."""

    @asynccontextmanager
    async def unchanged() -> AsyncGenerator[None]:
        before = await stored(context)
        yield
        assert await stored(context) == before

    return unchanged


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """The service in one process on a fresh data directory."""
    with Service(tmp_path / "data") as started:
        yield started
