"""Links of the documentation work, and the pages of the service are complete and harmless."""

from __future__ import annotations

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, LiteralString

import httpx2
import pytest
from golden import ROOT

from conformance import document
from each_row import each_row
from muniment.chains.catalogue import load_chains
from muniment.protocol.runs.reasons import REASONS
from muniment.relayer.settings import load_relayer_settings
from muniment.service.context import Context
from muniment.service.http.problems import all_refusals
from muniment.service.http.reference_pages import error_page, reference_page
from muniment.service.running.environment import known_variables

_OURS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_PAGES = [*_OURS, ROOT / "bench" / "README.md"]
# Decisions and the changelog tell of the time when they were written: their files may be gone.
_CURRENT = [page for page in _OURS if page.parent.name != "decisions" and page.name != "CHANGELOG.md"]
# Wider lines make a diff show a paragraph where one word changed. Tables and code cannot be broken.
_COLUMNS_MAX = 120
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_CODES = [refusal.code for refusal in all_refusals()]


def _headings(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@each_row("page", _PAGES, ids=[str(page.relative_to(ROOT)) for page in _PAGES])
def test_relative_links_have_existing_targets(page: Path) -> None:
    for target in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or file.suffix != ".md" or anchor in _headings(file), f"{page.name} links to {target}"


@each_row("page", _CURRENT, ids=[str(page.relative_to(ROOT)) for page in _CURRENT])
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert [path for path in _named_files(page.read_text("utf-8")) if not (ROOT / path).exists()] == []


@each_row("page", _CURRENT, ids=[str(page.relative_to(ROOT)) for page in _CURRENT])
def test_variables_that_a_page_names_exist_in_the_settings(page: Path) -> None:
    known = {"MUNIMENT_NAME", *known_variables()}
    if page.name == "CONTRIBUTING.md":
        known.add("MUNIMENT_KEY_SET_AGE_S_MAX")  # its reader makes this setting
    named = {name.removesuffix("_FILE") for name in re.findall(r"MUNIMENT_[A-Z_]+", page.read_text("utf-8"))}
    assert named - {name.removesuffix("_FILE") for name in known} == set()


def test_the_reasons_of_each_result_are_in_its_row() -> None:
    page = (ROOT / "docs" / "use" / "runs.md").read_text("utf-8").partition("## Reasons")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)`.*?\| (.+) \|$", page, re.MULTILINE)
    for result, reasons in REASONS.items():
        named = " ".join(codes for name, codes in rows if name == result)
        assert re.findall(r"`([a-z-]+)`", named) == list(reasons), result


def test_a_file_that_a_page_calls_new_need_not_exist() -> None:
    page = "`tests/a.py` (new), and\n```sh\npytest tests/a.py tests/b.py # see https://host.test/docs/c.html\n```"
    assert _named_files(page) == ["tests/b.py"]


def _named_files(page: str) -> list[str]:
    """Paths in the repository that a page names, without those marked as new."""
    new = {Path(path).name for path in re.findall(r"`([\w/.-]+)`\s+\(new\)", page)}
    named = re.findall(r"(?<![\w/.-])(?:src|tests|docs|bench)/[\w/.-]*\w", page)
    return [path for path in named if Path(path).name not in new]


@each_row("page", _PAGES, ids=[str(page.relative_to(ROOT)) for page in _PAGES])
def test_a_line_of_prose_has_at_most_120_characters(page: Path) -> None:
    assert _wide_lines(page.read_text("utf-8")) == []


def test_a_wide_line_is_noticed_outside_of_tables_and_code() -> None:
    wide = "word " * 30
    assert _wide_lines(f"{wide}\n| {wide} |\n```sh\n{wide}\n```\n  {wide}") == [1, 6]


def _wide_lines(text: str) -> list[int]:
    """Numbers of lines, from 1, that are too wide, outside of tables and code."""
    prose = re.sub(r"^ *```.*?^ *```", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    return [
        number for number, line in enumerate(prose.split("\n"), 1)
        if len(line) > _COLUMNS_MAX and not line.startswith("|")
    ]  # fmt: skip


def test_the_function_of_the_page_on_functions_is_the_one_that_is_shipped() -> None:
    page = (ROOT / "docs" / "use" / "write-a-function.md").read_text("utf-8")
    for language, file in (("ts", "function.ts"), ("json", "manifest.json")):
        (shown,) = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        assert shown == (ROOT / "src" / "muniment" / "cli" / "sample" / file).read_text("utf-8")


_CATALOGUES: dict[str, LiteralString] = {
    "sqlite": "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
    "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid",
    "postgres": "SELECT table_name::text, column_name::text FROM information_schema.columns "
    "WHERE table_schema = 'public' ORDER BY table_name, ordinal_position",
}


@pytest.mark.parametrize(
    ("engine", "database_url"), [(engine, engine) for engine in _CATALOGUES], indirect=["database_url"]
)
async def test_the_page_of_the_database_has_every_column_of_every_table(engine: str, context: Context) -> None:
    made: dict[str, list[str]] = {}
    for table, column in await context.database.fetch(_CATALOGUES[engine]):
        made.setdefault(table, []).append(column)
    assert _described_tables((ROOT / "docs" / "develop" / "database.md").read_text("utf-8")) == made


def test_a_column_without_a_meaning_is_not_described() -> None:
    page = "## one\n| `a` | the key |\n| `b` | |\n## Two words\n| `c` | no table |\n"
    assert _described_tables(page) == {"one": ["a"]}


def _described_tables(page: str) -> dict[str, list[str]]:
    """Columns by table: a section with the name of a table has a row for each column, with its meaning."""
    sections = re.findall(r"^## ([a-z_0-9]+)$(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return {table: re.findall(r"^\| `(\w+)` \| [^|\s]", text, re.MULTILINE) for table, text in sections}


def test_the_chains_file_of_the_page_on_running_can_be_loaded(tmp_path: Path) -> None:
    samples = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "run" / "running.md").read_text("utf-8"), re.DOTALL)
    file = tmp_path / "chains.toml"
    file.write_text("\n".join(samples))
    assert load_chains(file)[8453].rpc_urls == ("https://first.example/KEY", "https://second.example")


def test_the_file_of_the_page_on_relayers_can_be_loaded(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "use" / "run-functions.md").read_text("utf-8")
    (sample,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "relayer.toml").write_text(sample)
    (tmp_path / "operator.key").write_text("key\n")
    settings = load_relayer_settings(tmp_path / "relayer.toml", {})
    assert (settings.operator_key, settings.chains_file) == ("key", tmp_path / "chains.toml")
    for name, bound in re.findall(r"^\| `(\w+_max)` \| [^|]*\| ([\d,]+) \|$", page, re.MULTILINE):
        assert getattr(settings, name) == int(bound.replace(",", ""))


@each_row(
    ("contract", "folder"),
    [("Rooms: imports go down", "."), ("Inside the service: imports go down", "service")],
    ids=["rooms", "service"],
)
def test_the_drawing_of_the_rooms_is_that_of_the_import_contract(contract: str, folder: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["name"] == contract]
    modules = (ROOT / "src" / "muniment" / folder).glob("[a-z]*")
    rooms = {path.stem for path in modules if path.suffix == ".py" or any(path.glob("*.py"))}
    page = (ROOT / "docs" / "develop" / "architecture.md").read_text("utf-8")
    drawings = page.partition("## The rooms")[2].split("```")[1:4:2]
    drawn = _drawn_layers(drawings[folder == "service"])
    assert drawn == [set(layer.split(" | ")) for layer in layers if layer != "__main__"]
    assert set().union(*drawn) == rooms


def _drawn_layers(drawing: str) -> list[set[str]]:
    """The rooms of each line, from the top: names between bars, up to the first wide gap."""
    lines = [re.split(r" {2,}", line.strip())[0] for line in drawing.splitlines()]
    return [set(line.split(" | ")) for line in lines if line]


class Outline(HTMLParser):
    """The elements, ids and link targets of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def values(self, name: str) -> list[str]:
        return [value or "" for attribute, value in self.attributes if attribute == name]


async def _page(client: httpx2.AsyncClient, path: str, *, has_scripts: bool = False) -> Outline:
    response = await client.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert ("script-src 'self'; " in policy) == has_scripts
    assert response.headers["x-content-type-options"] == "nosniff"
    outline = Outline(response.text)
    assert ("script" in outline.tags) == has_scripts
    assert not {"iframe", "object", "embed", "img"} & set(outline.tags)
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    # Relative, so that a proxy may serve the registry under a path of its own; the icon is in the page.
    assert not [
        href for href in outline.values("href") if href.startswith("/") or "://" in href.removeprefix("data:")[:8]
    ]
    return outline


async def test_the_reference_has_every_operation_and_every_code(client: httpx2.AsyncClient) -> None:
    outline = await _page(client, "/docs", has_scripts=True)
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    operations = [each["operationId"] for methods in document()["paths"].values() for each in methods.values()]
    assert set(operations) <= set(ids)
    links = set(outline.values("href"))
    assert {f"errors/{code}" for code in _CODES} <= links
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)


async def test_every_code_has_a_page(client: httpx2.AsyncClient) -> None:
    for code in _CODES:
        outline = await _page(client, f"/errors/{code}", has_scripts=True)
        assert "../docs#errors" in outline.values("href"), code


@pytest.mark.parametrize("code", ["no-such-code", "Integrity", "%3Cscript%3E", "a" * 300])
async def test_an_unknown_code_has_no_page(client: httpx2.AsyncClient, code: str) -> None:
    response = await client.get(f"/errors/{code}")
    assert response.status_code == 404
    assert response.json()["code"] == "unknown-path"


def test_text_of_the_document_is_escaped_in_pages() -> None:
    wrapped: Any = _with_markup(document())
    for page in (reference_page(wrapped, None), error_page("invalid-json", wrapped, None)):
        text = page.body.decode()
        assert "<i>" not in text
        assert "&lt;i&gt;" in text


def _with_markup(node: Any) -> Any:
    """The document with markup in every description."""
    if isinstance(node, list):
        return [_with_markup(each) for each in node]
    if isinstance(node, dict):
        return {
            key: f"<i>{value}" if key in {"description", "summary", "meaning", "detail"} and isinstance(value, str)
            else _with_markup(value)
            for key, value in node.items()
        }  # fmt: skip
    return node
