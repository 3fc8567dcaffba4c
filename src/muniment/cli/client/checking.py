"""`muniment verify --url`: check everything that a service shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muniment.cli import output
from muniment.cli.client.failing import FORGED
from muniment.cli.client.opening import opened
from muniment.cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from muniment.client import Forged, Page, Registry


def verify_service(flags: dict[str, Any]) -> None:
    """Read every function, trigger and intent of a service and check each. The status is 0 if all is well, 5 if not."""
    wrong = 0
    with opened({**flags, "no_verify": False}) as registry:
        checks = {
            "functions": _functions(registry),
            "triggers": _listed(lambda on_forged: registry.triggers.list(on_forged=on_forged).pages()),
            "intents": _listed(lambda on_forged: registry.intents.list(on_forged=on_forged).pages()),
        }
        for name, results in checks.items():
            count = 0
            for forged in results:
                count += 1
                if forged is not None:
                    wrong += 1
                    output.print_text(printable(str(forged)))
            output.print_text(f"{name}: {count} checked")
    if wrong:
        output.print_text(f"{wrong} wrong")
        raise SystemExit(FORGED)
    output.print_text(
        "everything matches its signatures and hashes; completeness cannot be verified without the transparency log"
    )


def _functions(registry: Registry) -> Iterator[Forged | None]:
    from muniment.client import Forged
    from muniment.errors import Absent, InvalidCid

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


def _listed(pages_of: Callable[[Callable[[Forged], None]], Iterator[Page[Any]]]) -> Iterator[Forged | None]:
    """A result for each record of a listing, which `pages_of` reads with a callback for forged records."""
    wrong: list[Forged] = []
    for page in pages_of(wrong.append):
        yield from (None for _ in page)
        yield from wrong
        wrong.clear()
    yield from wrong  # of pages where every record was forged
