"""`muniment deploy` and `muniment functions`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muniment.cli.client.listing import list_options, show_newest
from muniment.cli.client.service import login_options, opened, service_options
from muniment.cli.client.short_ids import whole_function
from muniment.cli.output import Column, ago, print_note, shape_options, short, short_address, show_one, transfers

if TYPE_CHECKING:
    from muniment.protocol.functions.types import Function


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True), default="build")
@click.option("--key", "-k", help="API key; default: MUNIMENT_API_KEY, or that of the profile.")
@login_options
@shape_options
def deploy(directory: Path, *, key: str | None, as_json: bool | None, **flags: Any) -> None:
    """Upload the function in DIRECTORY (default: build).

    It has the files manifest.json and function.wasm.

    The CID is computed here and compared with the answer. It is written to DIRECTORY/CID.json.
    """
    import json

    from muniment.client import Bundle

    with transfers() as progress, opened(flags, needs="key", api_key=key, progress=progress) as registry:
        function = registry.functions.deploy(Bundle.read(directory))
        (directory / "CID.json").write_text(json.dumps({"CID": function.cid}, indent=2) + "\n", "utf-8")
    show_one(function, _members(function), as_json=as_json)


@click.group()
def functions() -> None:
    """The functions of a registry."""


@functions.command("list")
@click.option("--creator", help="Only those that this address has deployed.")
@click.option("--name", help="Only those whose name begins so, in upper or lower case.")
@service_options
@list_options
def list_functions(
    *,
    creator: str | None,
    name: str | None,
    limit: int | None,
    every: bool,
    as_json: bool | None,
    whole: bool,
    **flags: Any,
) -> None:
    """List functions, the newest first."""
    columns = [
        Column("CID", lambda each: short(each.cid, whole=whole)),
        Column("NAME", lambda each: each.name, may_be_cut=True),
        Column("VERSION", lambda each: each.version), Column("DEPLOYED", lambda each: ago(each.created_at)),
        Column("BY", lambda each: short_address(each.creator, whole=whole)),
    ]  # fmt: skip
    with opened(flags) as registry:
        show_newest(
            lambda size: registry.functions.list(creator=creator, name=name, newest_first=True, limit=size),
            columns, limit=limit, every=every, as_json=as_json, whole=whole,
            empty="no functions; `muniment deploy DIR` adds one",
        )  # fmt: skip


@functions.command("show")
@click.argument("cid")
@service_options
@shape_options
def show_function(cid: str, *, as_json: bool | None, **flags: Any) -> None:
    """Show a function and its inputs. Its manifest is proved by the CID."""
    with opened(flags) as registry:
        whole = whole_function(registry, cid)
        function, manifest = registry.functions.get(whole), registry.functions.manifest(whole)
    inputs = "\n".join(f"{name}: {word}" for name, word in manifest.inputs.items()) or "none"
    show_one(function, {**_members(function), "inputs": inputs}, as_json=as_json)


@functions.command("download")
@click.argument("cid")
@click.argument("directory", type=click.Path(path_type=Path))
@service_options
def download_function(cid: str, directory: Path, **flags: Any) -> None:
    """Write the files of a function into the new DIRECTORY. Every block is checked against the CID."""
    with transfers() as progress, opened(flags, progress=progress) as registry:
        whole = whole_function(registry, cid)
        registry.functions.download(whole, directory)
    print_note(f"{directory} has the files that {whole} names")


def _members(function: Function) -> dict[str, str]:
    return {
        "CID": function.cid, "name": function.name, "version": function.version,
        "description": function.description,
        "deployed": f"{ago(function.created_at)}, by {function.creator} (as the service says)",
    }  # fmt: skip
