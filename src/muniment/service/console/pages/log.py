"""The transparency log: its epochs, keys, checkpoint and newest entries, and proofs for the scripts of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import NotLoggedYet
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.log.entries import (
    BackfilledFact,
    CloseFact,
    DeactivationFact,
    FunctionFact,
    LogFact,
    TriggerFact,
    parse_entry,
)
from muniment.protocol.log.notes import parse_note, parse_verifier_key
from muniment.protocol.log.tiles import ENTRIES, WIDTH, Tile
from muniment.protocol.wire import ms_of
from muniment.service.console.page import page
from muniment.service.console.parts import command, dated, facts, heading, identifier, link, relative, table
from muniment.service.console.rows import log_state, meaning_of_stop
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import NOTHING, Html, html, strange
from muniment.service.http.operation import operation
from muniment.service.http.reply import NO_STORE, Ready
from muniment.service.http.request import Request
from muniment.service.resources.log import store
from muniment.service.resources.log.reading import Tail
from muniment.service.resources.log.routes import (
    PROOF_COST,
    CreatorQuery,
    get_deactivation_proof,
    get_function_proof,
    get_trigger_proof,
    require_log,
)
from muniment.service.running.limits.costs import Shed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from muniment.protocol.log.entries import Entry
    from muniment.service.resources.log.store import Epoch
    from muniment.service.storage.database import Reader

# The newest entries that the page shows.
_ENTRIES: Final = 10


@page("/console/log")
async def log_page(context: Context, request: Request) -> Page:
    """The state of the log, and what anybody needs to check it. Refused where the registry keeps none."""
    require_log(context)
    root, database = root_from(request.path), context.database
    epochs, now_ms = await store.all_epochs(database), context.clock.now_ms()
    if not epochs:
        body = html("<h1>Transparency log</h1>{}<p>It has not begun: it begins when the service runs.</p>", _ABOUT)
        return Page("Transparency log", body, json=f"{root}log")
    newest = epochs[0]
    stop = meaning_of_stop(newest.state, newest.why)
    body = html(
        "{}{}{}{}{}{}{}{}{}",
        heading("Transparency log", level=1, end=log_state(newest.state)),
        _ABOUT, html('<p class="note">{}</p>', stop) if stop else None, _facts(newest, now_ms),
        heading("Newest entries", end=_bundle(newest, root)), await _entries(database, newest, root, now_ms),
        _checkpoint(newest, root), _verify(context, root),
        html("{}{}", heading("Epochs"), _epochs(epochs, root)) if len(epochs) > 1 else None,
    )  # fmt: skip
    return Page("Transparency log", body, json=f"{root}log")


_ABOUT: Final = html(
    "<p>One list of every function, trigger and deactivation of this registry. It only grows, and is the same for "
    "everybody: a record that is changed, hidden or backdated does not go unnoticed.</p>"
)


def _facts(epoch: Epoch, now_ms: int) -> Html:
    tree, *times = epoch.vkeys.split("\n")
    signed_at_ms = epoch.signed_at_ms
    return facts([
        ("Name", html("<code>{}</code>", epoch.origin)),
        ("Signed entries", html("{}", f"{epoch.note_size:,}")),
        ("Waiting for a signature", html("{}", f"{waiting:,}") if (waiting := epoch.size - epoch.note_size) else None),
        ("Last signed", dated(signed_at_ms, now_ms) if signed_at_ms else None),
        ("Witnesses", _witnesses(epoch)),
        ("Key of the tree", identifier(tree, whole=True)),
        ("Key of its times", html("{}", [identifier(each, whole=True) for each in times]) if times else None),
        ("Begun", dated(epoch.opened_at_ms, now_ms)),
    ])  # fmt: skip


def _witnesses(epoch: Epoch) -> Html | None:
    """The names beside which the checkpoint has a signature that is not the log's own. Only their keys prove them."""
    if epoch.note is None:
        return None
    try:
        signatures = parse_note(epoch.note.encode()).signatures
        own = {(key.name, key.key_id) for key in map(parse_verifier_key, epoch.vkeys.split("\n"))}
    except ValueError:
        return html('<span class="bad">the checkpoint cannot be read</span>')
    names = [each.name for each in signatures if (each.name, each.key_id) not in own]
    if not names:
        return html('<span class="faint">none has signed the last checkpoint</span>')
    return html("{}", [html("<div><code>{}</code></div>", strange(each)) for each in names])


def _bundle(epoch: Epoch, root: str) -> Html:
    """The link to the last signed bundle of entries."""
    if not epoch.note_size:
        return NOTHING
    n, width = divmod(epoch.note_size - 1, WIDTH)
    return link(f"{root}log/{epoch.epoch}/tile/{Tile(ENTRIES, n, width + 1).path}", "As the log has them")


async def _entries(reader: Reader, epoch: Epoch, root: str, now_ms: int) -> Html:
    """The newest signed entries of the last bundle; earlier bundles are compressed, and not unpacked for a page."""
    first = max(epoch.note_size - _ENTRIES, epoch.note_size // WIDTH * WIDTH)
    found = (
        await store.read_tail(reader, epoch.epoch, first, epoch.note_size - first) if epoch.note_size > first else []
    )
    if not found:
        return html('<p class="empty">None in the bundle that is being filled.</p>')
    lines = [
        (f"{first + at:,}", *_entry(data, root, now_ms)) for at, data in reversed(list(enumerate(found)))
    ]  # fmt: skip
    return table(
        ("Index", "Entry", "Record", "By", "Time"), lines, label="Newest entries", numbers=("Time",), is_list=True
    )


def _entry(data: bytes, root: str, now_ms: int) -> tuple[str, Html, Html, Html]:
    """What an entry says, its record, the wallet, and the time in it."""
    try:
        entry = parse_entry(data)
    except ValueError:
        return "cannot be read", _DASH, _DASH, _DASH
    words, record, wallet = _said(entry, root)
    at = getattr(entry, "created_at", None) or getattr(entry, "at", None)
    who = identifier(wallet, f"{root}console/addresses/{wallet}") if wallet else _DASH
    return words, record, who, relative(ms_of(at), now_ms) if at else _DASH


_DASH: Final = html("–")


def _said(entry: Entry | None, root: str) -> tuple[str, Html, str]:
    """The kind of an entry in words, its record, and its wallet."""
    if isinstance(entry, TriggerFact):
        return "trigger registered", identifier(entry.sig, f"{root}console/triggers/{entry.sig}"), entry.signer
    if isinstance(entry, FunctionFact):
        return "function deployed", identifier(entry.cid, f"{root}console/functions/{entry.cid}"), entry.uploader
    if isinstance(entry, DeactivationFact):
        links = [
            html("<div>{}</div>", identifier(each, f"{root}console/triggers/{each}")) for each in entry.trigger_sigs
        ]
        return (
            f"{len(links)} trigger{'s' if len(links) > 1 else ''} ended",
            html("{}", links[:_SHOWN_MAX]),
            entry.signer,
        )
    if isinstance(entry, LogFact):
        return "the epoch begins", html("<code>{}</code>", entry.origin), ""
    if isinstance(entry, BackfilledFact):
        return "records before this are older than the log", _DASH, ""
    return ("the epoch ends" if isinstance(entry, CloseFact) else "of a kind that this page does not know"), _DASH, ""


# Triggers of one deactivation that are named.
_SHOWN_MAX: Final = 5


def _checkpoint(epoch: Epoch, root: str) -> Html:
    if epoch.note is None:
        return html('{}<p class="empty">None is signed yet.</p>', heading("Checkpoint"))
    return html(
        "{}<pre>{}</pre>",
        heading("Checkpoint", end=link(f"{root}log/{epoch.epoch}/checkpoint", "As a file")),
        strange(epoch.note.rstrip("\n")),
    )  # fmt: skip


def _verify(context: Context, root: str) -> Html:
    """The command that checks the log; a script puts the URL of the page where the registry does not know its own."""
    url = context.settings.public_url.rstrip("/")
    shown = html("{}", url) if url else html('<span class="here">https://registry.example</span>')
    return html(
        "{}<p>This reads the whole log once, and later what is new. It tells whether the log has only grown since. Run "
        "it every few minutes if you rely on this registry.</p>"
        "{}"
        "<p>Compare the key and a checkpoint with those that others have got: only that shows that everybody sees the "
        'same log. For tools: <a href="{}log">the epochs as JSON</a>; checkpoints, tiles and proofs are in the formats '
        "of C2SP.</p>",
        heading("Verify this yourself"), command(html("muniment tlog verify {} --state seen.json", shown)), root,
    )  # fmt: skip


def _epochs(epochs: Sequence[Epoch], root: str) -> Html:
    lines = [
        (
            each.epoch, html("<code>{}</code>", each.origin),
            log_state(each.state),
            f"{each.note_size:,}", identifier(each.vkey),
            link(f"{root}log/{each.epoch}/checkpoint", "checkpoint") if each.note else _DASH,
        )
        for each in epochs
    ]  # fmt: skip
    return table(("Epoch", "Name", "State", "Entries", "Key", "Last"), lines, label="Epochs", numbers=("Entries",))


# A page asks for the proof of a record that may be too new to have one. The API answers that with 404, which browsers
# report as an error of the page: these answer 204.
@operation("GET", "/console/triggers/{sig}/proof", cost=PROOF_COST, sheds=Shed.PAGE)
async def trigger_proof(context: Context, tail: Tail, sig: Signature) -> Ready[bytes]:
    """Read the proof of a trigger, or that there is none yet."""
    return await _if_logged(get_trigger_proof.handler(context, tail, sig))


@operation("GET", "/console/functions/{cid}/proof", cost=PROOF_COST, sheds=Shed.PAGE)
async def function_proof(context: Context, tail: Tail, cid: Cid) -> Ready[bytes]:
    """Read the proof of a function, or that there is none yet."""
    return await _if_logged(get_function_proof.handler(context, tail, cid, CreatorQuery()))


@operation("GET", "/console/deactivations/{signature}/proof", cost=PROOF_COST, sheds=Shed.PAGE)
async def deactivation_proof(context: Context, tail: Tail, signature: Signature) -> Ready[bytes]:
    """Read the proof of a deactivation, or that there is none yet."""
    return await _if_logged(get_deactivation_proof.handler(context, tail, signature))


async def _if_logged(asked: Awaitable[Ready[bytes]]) -> Ready[bytes]:
    try:
        return await asked
    except NotLoggedYet:
        return Ready(b"", (NO_STORE,), 204)
