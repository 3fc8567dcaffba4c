"""`muniment verify` with --url and --remote: check everything that a service shows, also against its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muniment.cli import output
from muniment.cli.client.service import FORGED, failures, opened
from muniment.cli.tlog import FORKED, follow_or_exit, rules_of, verified_text
from muniment.protocol.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muniment.cli.log_tables import Ledger
    from muniment.client import Forged, Page, Progress, Registry
    from muniment.protocol.functions.types import Function
    from muniment.protocol.triggers.types import Trigger


def verify_service(flags: dict[str, Any]) -> None:
    """Read every function, trigger, run and intent of a service and check each. The status is 0, or 5 for a fault."""
    wrong = 0
    with opened({**flags, "no_verify": False}) as registry:
        checks = {
            "functions": _functions(registry),
            "triggers": _listed(lambda on_forged: registry.triggers.list(on_forged=on_forged).pages()),
            "runs": _runs(registry),
            "intents": _listed(lambda on_forged: registry.intents.list(on_forged=on_forged).pages()),
        }
        for name, results in checks.items():
            count = 0
            for forged in results:
                count += 1
                if forged is not None:
                    wrong += 1
                    output.print_text(visible(str(forged)))
            output.print_text(f"{name}: {count} checked")
    if wrong:
        output.print_text(f"faults: {wrong}")
        raise SystemExit(FORGED)
    output.print_text("all signatures and hashes match; --remote also checks completeness, with the transparency log")


def _functions(registry: Registry) -> Iterator[Forged | None]:
    from muniment.client import Forged
    from muniment.protocol.errors import Absent, InvalidCid

    for function in registry.functions.list():
        try:
            is_as_listed = registry.functions.get(function.cid) == function
        except Forged as forged:
            yield forged
        except (Absent, InvalidCid) as refusal:  # invalid: a CID that no function has
            if not refusal.code:  # not by a registry
                raise
            yield Forged(f"function {function.cid} is listed, but the service lacks it: {refusal.detail}")
        else:
            yield None if is_as_listed else Forged(f"function {function.cid} differs from its listing")


def _runs(registry: Registry) -> Iterator[Forged | None]:
    """Each run, whole: a listing has no evidence."""
    from muniment.client import Forged
    from muniment.protocol.errors import RunNotFound

    wrong: list[Forged] = []
    for run in registry.runs.list(on_forged=wrong.append):
        try:
            registry.runs.get(run.hash)
        except Forged as forged:
            yield forged
        except RunNotFound:  # a verdict has taken the place of a note, or it was removed with its age
            yield None
        else:
            yield None
        yield from wrong
        wrong.clear()
    yield from wrong


def _listed(pages_of: Callable[[Callable[[Forged], None]], Iterator[Page[Any]]]) -> Iterator[Forged | None]:
    """A result for each record of a listing, which `pages_of` reads with a callback for forged records."""
    wrong: list[Forged] = []
    for page in pages_of(wrong.append):
        yield from (None for _ in page)
        yield from wrong
        wrong.clear()
    yield from wrong  # of pages where every record was forged


def verify_remote(url: str, protocol: str | None) -> None:
    """Verify the log of the registry at `url`, functions, triggers and deactivations against it, runs and intents.

    The status is 0 if all agree, 1 if not; otherwise as for `muniment tlog verify`.
    """
    from dataclasses import replace

    from muniment.cli.log_tables import Ledger, known_records
    from muniment.client import Registry

    wrong = 0
    with failures(), Registry(url, protocol=protocol or "Mimic") as registry, Ledger() as ledger:
        rules = replace(rules_of(None, (), accepts=True), from_start=True, on_entry=ledger.add)
        with known_records(None) as known:
            progress = follow_or_exit(registry, None, replace(rules, known=known))
        output.print_text(verified_text(progress, is_first=True))
        compared = _Compared(registry, ledger, progress)
        parts: list[tuple[str, Iterator[str]]] = [
            ("log", iter(progress.faults)), ("functions", compared.functions()), ("triggers", compared.triggers()),
            ("deactivations", compared.deactivations()), ("runs", compared.runs()), ("intents", compared.intents()),
        ]  # fmt: skip
        for name, faults in parts:
            count = 0
            for fault in faults:
                count += 1
                output.print_text(f"WRONG {visible(fault)}")
            wrong += count
            output.print_text(f"{name}: {count or 'none'} wrong")
    if wrong:
        raise SystemExit(FORKED)
    output.print_text("the registry and its log agree")


class _Compared:
    """Comparison of the records of a registry with the entries of its log. Each method yields faults."""

    def __init__(self, registry: Registry, ledger: Ledger, progress: Progress) -> None:
        self._registry = registry
        self._ledger = ledger
        # Records after this time may wait for the log.
        self._due_ms = (progress.signed_at_s - 600) * 1000

    def functions(self) -> Iterator[str]:
        """Functions, by the wallet that their record names."""
        for function in self._registry.functions.list():
            yield from self._provably(lambda function=function: self._function(function))
        yield from self._unlisted("function")

    def triggers(self) -> Iterator[str]:
        """Triggers, and whether their end is in the log exactly when the registry says so."""
        wrong: list[str] = []
        for trigger in self._registry.triggers.list(on_forged=lambda forged: wrong.append(str(forged))):
            yield from self._provably(lambda trigger=trigger: self._trigger(trigger))
        yield from wrong
        yield from self._unlisted("trigger")

    def deactivations(self) -> Iterator[str]:
        """The deactivations in the log: their signatures, and what the registry shows of them."""
        from muniment.client.proof import check_deactivation
        from muniment.protocol.evm.address import Address
        from muniment.protocol.evm.signature import Signature
        from muniment.protocol.log.entries import DeactivationFact, parse_entry

        for entry in self._ledger.deactivations():
            fact = parse_entry(entry)
            assert isinstance(fact, DeactivationFact)  # noqa: S101 - the ledger keeps what was parsed

            def check(fact: DeactivationFact = fact) -> None:
                protocol = fact.domain.removesuffix(" Protocol - Registry")
                sigs = [Signature.parse(each) for each in fact.trigger_sigs]
                check_deactivation(sigs, Signature.parse(fact.signature), Address.parse(fact.signer), protocol)

            yield from self._provably(lambda check=check: check() or iter(()))
            yield from self._provably(lambda fact=fact, entry=entry: self._deactivation(fact.signature, entry))

    def intents(self) -> Iterator[str]:
        """The hashes of intents and of their proposals: the log has none of them."""
        wrong: list[str] = []
        for _ in self._registry.intents.list(on_forged=lambda forged: wrong.append(str(forged))):
            pass
        yield from wrong

    def runs(self) -> Iterator[str]:
        """The hashes of runs, and the evidence of each: the log has none of them."""
        yield from (str(forged) for forged in _runs(self._registry) if forged is not None)

    def _provably(self, check: Callable[[], Iterator[str]]) -> Iterator[str]:
        """Faults of `check`, including forged answers and missing records."""
        from muniment.client import Forged
        from muniment.protocol.errors import Absent, Invalid

        try:
            yield from check()
        except Forged as forged:
            yield str(forged)
        except (Absent, Invalid) as refusal:  # invalid: what it names by another form, such as a CID of no function
            if not refusal.code:  # not by a registry
                raise
            yield f"the registry lacks what it shows elsewhere: {refusal.detail}"

    def _deactivation(self, signature: str, entry: bytes) -> Iterator[str]:
        from muniment.protocol.errors import DeactivationNotFound

        name = f"deactivation {signature}"
        try:
            record = self._registry.triggers.deactivation(signature)
        except DeactivationNotFound:
            yield f"{name} is in the log, but not in the registry"
            return
        if self._registry.log.entry(record) != entry:
            yield f"{name} differs from its entry in the log"

    def _function(self, function: Function) -> Iterator[str]:
        if self._registry.functions.get(function.cid) != function:  # that one is proved
            yield f"function {function.cid} differs from its listing"
        name = f"function {function.cid} {function.creator}"
        yield from self._entry(name, self._registry.log.entry(function), function.created_at)

    def _trigger(self, trigger: Trigger) -> Iterator[str]:
        yield from self._entry(f"trigger {trigger.sig}", self._registry.log.entry(trigger), trigger.created_at)
        logged, shown = self._ledger.ending(trigger.sig, trigger.signer), trigger.deactivate_sig or None
        if shown == logged:
            return
        if shown is None:
            yield f"trigger {trigger.sig} is ended in the log by {logged}, but the registry shows it as active"
        elif logged is not None:
            yield f"trigger {trigger.sig} is ended in the log by {logged}, but in the registry by {shown}"
        else:
            yield from self._provably(lambda: self._unlogged_end(trigger, shown))

    def _unlogged_end(self, trigger: Trigger, signature: str) -> Iterator[str]:
        """A deactivation that is missing in the log: it may still be pending."""
        from muniment.protocol.errors import DeactivationNotFound

        try:
            record = self._registry.triggers.deactivation(signature)
        except DeactivationNotFound:
            yield f"trigger {trigger.sig} is ended by {signature}, which neither the registry nor its log has"
            return
        if trigger.sig not in record.trigger_sigs or record.signer != trigger.signer:
            yield f"trigger {trigger.sig} is ended by {signature}, which does not name it, or is by another wallet"
        elif self._is_due(record.created_at):
            yield f"the end of trigger {trigger.sig} is not in the log"

    def _entry(self, name: str, entry: bytes, created_at: str) -> Iterator[str]:
        logged = self._ledger.entry(name)
        if logged is None:
            if self._is_due(created_at):
                yield f"{name} is not in the log"
        elif logged != entry:
            yield f"{name} differs from its entry in the log"

    def _unlisted(self, kind: str) -> Iterator[str]:
        """Entries without a record. A function may be recorded for another wallet."""
        for name in list(self._ledger.unlisted(kind)):  # the loop changes the ledger
            _, key, *uploader = name.split(" ")
            if uploader:
                yield from self._provably(
                    lambda name=name, key=key, by=uploader[0]: self._unlisted_function(name, key, by)
                )
            else:
                yield f"{name} is in the log, but the registry does not list it"

    def _unlisted_function(self, name: str, cid: str, uploader: str) -> Iterator[str]:
        from muniment.protocol.errors import FunctionNotFound

        try:
            function = self._registry.functions.get(cid)
        except FunctionNotFound:
            yield f"{name} is in the log, but not in the registry"
            return
        yield from self._entry(name, self._registry.log.entry(function, creator=uploader), function.created_at)

    def _is_due(self, created_at: str) -> bool:
        from muniment.protocol.log.fields import time_ms_of

        try:
            return time_ms_of(created_at, "a time") < self._due_ms
        except ValueError:  # the log has no such entry, however long one waits
            return True
