"""The hot statements that plans.py explains: what is asked, by a caller of many, of a table of so many rows."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from many_triggers import MS_BETWEEN, NOW_MS, SEQ_BETWEEN, SIGNERS
from muniment.evm.address import Address
from muniment.evm.signature import Signature
from muniment.http.paging import Cursor, cursor_after
from muniment.intents import listing
from muniment.intents.lifecycle import Moment
from muniment.intents.queries import IntentQuery
from muniment.intents.store import mark_expired
from muniment.ipfs.cid import BundleCid, cid_v0
from muniment.triggers import store
from muniment.triggers.listing import TriggerQuery, search
from muniment.triggers.store import NewRow

Case = tuple[str, Callable[[Any, int, int], Awaitable[object]]]


def hash_of(what: str, number: int) -> bytes:
    return hashlib.sha256(f"{what}{number}".encode()).digest()


def sig_of(number: int) -> Signature:
    return Signature(f"0x{(hash_of('r', number) + hash_of('s', number)).hex()}1b")


def address_of(what: str, number: int) -> Address:
    return Address.from_raw(hash_of(what, number)[:20])


def triggers_listed(what: str, query: Callable[[int, int], dict[str, Any]]) -> Case:
    """A listing; `query` is given the number of rows and a number that differs between callers."""
    return what, lambda database, rows, n: search(database, TriggerQuery(**query(rows, n)), NOW_MS)


def intents_listed(what: str, query: Callable[[int, int], dict[str, Any]]) -> Case:
    return what, lambda database, rows, n: listing.search(
        database, IntentQuery(**query(rows, n)), Moment(NOW_MS, 3_600)
    )


def signer(number: int) -> Address:
    return address_of("signer", number)


def function(number: int) -> BundleCid:
    return BundleCid.parse(str(cid_v0(hash_of("function", number))))


def new_row(n: int) -> NewRow:
    return NewRow(sig_of(-1 - n), signer(n + 1), hash_of("new", n), hash_of("function", 1), "Mimic", 0, NOW_MS,
                  lambda _: "." * 1_200)  # fmt: skip


def at(rows: int, n: int) -> Cursor:
    return Cursor(cursor_after("triggers", (rows // 2 + n) * SEQ_BETWEEN, None).decode())


DAY = 86_400_000
TRIGGERS: Final[list[Case]] = [
    ("GET /triggers/{sig}", lambda db, rows, n: store.find(db, sig_of(rows // 2 + n))),
    ("the consent of a signer (POST /triggers)",
     lambda db, rows, n: store.find_consent(db, signer(1 + n), hash_of("digest", rows // 2 + n))),
    triggers_listed("newest", lambda _, __: {}),
    triggers_listed("of the signer with most", lambda _, n: {"signer": signer(1 + n)}),
    triggers_listed("of a signer with few", lambda _, n: {"signer": signer(SIGNERS // 2 + n)}),
    triggers_listed("of a function", lambda _, n: {"function_cid": function(1 + n)}),
    triggers_listed("of a signer and a function", lambda _, n: {"signer": signer(2 + n), "function_cid": function(3)}),
    triggers_listed("active", lambda _, __: {"active": True}),
    triggers_listed("not active", lambda _, __: {"active": False}),
    triggers_listed("active, of a signer", lambda _, n: {"active": True, "signer": signer(1 + n)}),
    triggers_listed("created in the last day", lambda _, n: {"created_after": NOW_MS - DAY + n}),
    triggers_listed("created before the middle",
                    lambda rows, n: {"created_before": NOW_MS - rows * MS_BETWEEN // 2 + n}),
    triggers_listed("created in a day in the middle, of a signer", lambda rows, n: {
        "created_before": NOW_MS - rows * MS_BETWEEN // 2, "created_after": NOW_MS - rows * MS_BETWEEN // 2 - DAY,
        "signer": signer(1 + n)}),
    triggers_listed("behind a cursor, newest first", lambda rows, n: {"cursor": at(rows, n)}),
    triggers_listed("behind a cursor, oldest first", lambda rows, n: {"cursor": at(rows, n), "sort": 1}),
    triggers_listed("of a signer behind a cursor, oldest first",
                    lambda rows, n: {"signer": signer(1 + n), "cursor": at(rows, n), "sort": 1}),
    triggers_listed("100 by signature", lambda _, n: {
        "sigs": [sig_of(k * 7 + n + 1) for k in range(100)], "limit": 100}),
    triggers_listed("newest, offset 1,000", lambda _, __: {"offset": 1_000}),
    ("store a trigger", lambda db, _, n: store.insert(db, new_row(n))),
    ("deactivate a trigger", lambda db, rows, n: store.deactivate(
        db, sig_of(rows // 2 + n).raw, f'"{"." * 1_398}"', NOW_MS)),
    ("mark those that have ended", lambda db, _, __: store.mark_ended(db, NOW_MS)),
]  # fmt: skip
INTENTS: Final[list[Case]] = [
    intents_listed("newest intents", lambda _, __: {}),
    intents_listed("intents of a user", lambda _, n: {"user": signer(1 + n)}),
    intents_listed("intents of a settler", lambda _, n: {"settler": address_of("settler", 1 + n % 5)}),
    intents_listed("intents of a trigger", lambda _, n: {"config_sig": sig_of(1 + n)}),
    intents_listed("submitted intents", lambda _, __: {"status": "submitted"}),
    intents_listed("expired intents", lambda _, __: {"status": "expired"}),
    intents_listed("succeeded intents of a user", lambda _, n: {"user": signer(1 + n), "status": "succeeded"}),
    ("mark those that have expired", lambda db, _, __: mark_expired(db, Moment(NOW_MS, 3_600))),
    intents_listed("intents behind a cursor, oldest first", lambda rows, n: {"cursor": at(rows, n), "sort": 1}),
]
