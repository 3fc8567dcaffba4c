"""The lies of a front that signs the log again, and who finds each of them by docs/use/transparency-log.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from signed_again_world import Front, Said, changed

from builders import Wallet
from muniment.protocol.log.entries import DeactivationFact, FunctionFact, TriggerFact, description_hash
from muniment.protocol.log.fields import time_ms_of
from muniment.protocol.wire import iso_time

HOUR_MS = 3_600_000
THIEF = Wallet(9)
NOT_SO = "does not have this record"
FINE: Said = (0, "")
FORKED: Said = (1, "has signed two histories")
# The answers for a logged record, and for a record without a proof.
PROVED, NO_PROOF = "", "no proof"


def earlier(time: str, by_ms: int = HOUR_MS) -> str:
    return iso_time(time_ms_of(time, "a time") - by_ms)


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda record: {name: value for name, value in record.items() if name not in names}


def change_a_record(front: Front) -> None:
    front.change(TriggerFact, description_hash=description_hash("Another"))
    front.change_trigger(front.site.sigs[0], lambda record: {**record, "description": "Another"})


def remove_a_record(front: Front) -> None:
    del front.entries[front.find(TriggerFact)[0]]
    front.lack_trigger(front.site.sigs[0])


def replace_a_record(front: Front) -> None:
    remove_a_record(front)
    front.entries.append(changed(front.find(FunctionFact)[1], uploader=THIEF.address).data)


def log_a_record_twice(front: Front) -> None:
    _, fact = front.find(TriggerFact)
    front.entries.append(changed(fact, created_at=earlier(fact.created_at, 1)).data)


def show_an_ended_trigger_as_active(front: Front) -> None:
    front.change_trigger(front.site.sigs[1], without("deactivateSig"))


def log_no_deactivation(front: Front) -> None:
    front.entries.pop(front.find(DeactivationFact)[0])
    front.answers[f"/deactivations/{front.site.ending}"] = None
    show_an_ended_trigger_as_active(front)


def log_no_deactivation_for_an_hour(front: Front) -> None:
    front.entries.pop(front.find(DeactivationFact)[0])
    front.answers[f"/deactivations/{front.site.ending}"] = lambda record: {
        **record, "createdAt": earlier(record["createdAt"])
    }  # fmt: skip


def date_a_record_back(front: Front) -> None:
    front.change(TriggerFact, 1, created_at=earlier(front.find(TriggerFact, 1)[1].created_at))
    front.change_trigger(
        front.site.sigs[1], lambda record: {**record, "createdAt": earlier(record["createdAt"])}
    )  # fmt: skip


def show_an_old_log(front: Front) -> None:
    front.at_s -= HOUR_MS // 1000


def refuse_a_trigger(front: Front) -> None:
    del front.entries[front.find(TriggerFact, 1)[0] :]
    front.lack_trigger(front.site.sigs[1])
    front.answers[f"/deactivations/{front.site.ending}"] = None


def order_records_differently(front: Front) -> None:
    (one, _), (other, _) = front.find(TriggerFact), front.find(TriggerFact, 1)
    front.entries[one], front.entries[other] = front.entries[other], front.entries[one]


def name_another_uploader(front: Front) -> None:
    front.change(FunctionFact, uploader=THIEF.address, creator=THIEF.address)
    cid = front.find(FunctionFact)[1].cid
    front.answers["/functions"] = lambda listed: [{**each, "creator": THIEF.address} for each in listed]
    front.answers[f"/functions/{cid}"] = lambda record: {**record, "creator": THIEF.address}


def end_a_trigger_by_another_wallet(front: Front) -> None:
    """The log has this deactivation, and the wallet has signed it: it is not the owner's."""
    sig = front.site.sigs[0]
    _, honest = front.find(DeactivationFact)
    signature = THIEF.sign_text(sig)
    front.entries.append(changed(honest, signature=signature, signer=THIEF.address, trigger_sigs=(sig,)).data)
    front.change_trigger(sig, lambda record: {**record, "deactivateSig": signature})
    domain = {"name": honest.domain, "version": "1"}
    front.answers[f"/deactivations/{signature}"] = lambda _: {
        "signature": signature, "signer": THIEF.address, "createdAt": honest.created_at, "triggerSigs": [sig],
        "form": "eip191", "domain": domain,
    }  # fmt: skip


@dataclass(frozen=True)
class Lie:
    """A lie of a front, and the result of each reader: `tlog verify` and `verify --remote` on a first run.

    `follows` is the result after the honest log was seen up to `since`, where the log itself signs the lie. `held` is
    the result for a record that the reader has from before, `shown` for the record that the front shows.
    """

    tell: Callable[[Front], None]
    reads: Said
    remote: Said
    follows: Said
    record: str
    held: str
    shown: str
    since: tuple[type[TriggerFact | DeactivationFact], int] | None = None


LIES = [
    Lie(change_a_record, FINE, FINE, FORKED, "trigger 0", NOT_SO, PROVED),
    Lie(remove_a_record, FINE, FINE, (2, "shows 5 entries"), "trigger 0", NOT_SO, NO_PROOF),
    Lie(replace_a_record, FINE, FINE, FORKED, "trigger 0", NOT_SO, NO_PROOF),
    Lie(
        log_a_record_twice, (1, "two entries of trigger"), (1, "two entries of trigger"), (1, "two entries of trigger"),
        "trigger 0", PROVED, PROVED,
    ),
    Lie(
        show_an_ended_trigger_as_active, FINE, (1, "but the registry shows it as active"), FINE,
        "trigger 1", PROVED, PROVED,
    ),
    Lie(log_no_deactivation, FINE, FINE, FINE, "deactivation", "not logged yet", NO_PROOF, (DeactivationFact, 0)),
    Lie(
        log_no_deactivation_for_an_hour, FINE, (1, "is not in the log"), FINE,
        "deactivation", "not logged yet", "not logged yet", (DeactivationFact, 0),
    ),
    Lie(
        date_a_record_back, FINE, FINE, (1, "absent 60 minutes after its date: backdated"),
        "trigger 1", NOT_SO, PROVED, (TriggerFact, 1),
    ),
    Lie(
        show_an_old_log, (2, "signed 60 minutes ago"), (2, "signed 60 minutes ago"), (2, "signed 60 minutes ago"),
        "trigger 0", PROVED, PROVED,
    ),
    Lie(refuse_a_trigger, FINE, FINE, FINE, "trigger 1", NOT_SO, NO_PROOF, (TriggerFact, 1)),
    Lie(order_records_differently, FINE, FINE, FORKED, "trigger 0", PROVED, PROVED),
    Lie(end_a_trigger_by_another_wallet, FINE, (1, "or is by another wallet"), FINE, "trigger 0", PROVED, PROVED),
    Lie(name_another_uploader, FINE, FINE, FORKED, "function", NOT_SO, PROVED),
]  # fmt: skip
