"""What rows say besides their records: the names of functions, the newest runs, tokens, chains, and who signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.protocol.errors import InvalidSignature
from muniment.protocol.evm.signature import Signature
from muniment.protocol.functions.types import Function
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.types import Intent
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.triggers.types import Trigger
from muniment.service.console import reading
from muniment.service.console.words import Tokens
from muniment.service.resources.functions.routes import list_functions
from muniment.service.resources.functions.store import FunctionQuery
from muniment.service.resources.intents.counting import count_by_trigger as count_intents
from muniment.service.resources.runs.counting import count_by_trigger as count_runs
from muniment.service.resources.triggers.counting import Signed, count_by_function
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.triggers.routes import list_triggers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from muniment.chains.catalogue import Chain
    from muniment.protocol.intents.types import AnyIntent
    from muniment.protocol.runs.types import Run
    from muniment.service.context import Context
    from muniment.service.http.request import Request

# The newest intents and runs of a trigger that a row counts.
COUNTED: Final = 30
# Active triggers of a function that are counted; more are "100 or more".
SIGNED_MAX: Final = 100


class Beside(NamedTuple):
    """What is known beside the records of a table."""

    tokens: Tokens
    chains: Mapping[int, Chain]
    # By the digest of their CID.
    functions: Mapping[bytes, Function]
    # By signature: of each trigger its newest run, and the trigger of each intent.
    runs: Mapping[str, Run]
    triggers: Mapping[str, Trigger]
    # By signature: what came of the newest intents and runs of each trigger, where that is not all good.
    undone: Mapping[str, Sequence[str]]

    def function(self, cid: str) -> Function | None:
        """The function of this CID, in either version."""
        return self.functions.get(Cid.parse(cid).digest)


async def of_triggers(context: Context, request: Request, triggers: Sequence[Trigger]) -> Beside:
    """Of at most a hundred triggers."""
    runs = await reading.last_runs(context, request, triggers)
    known = await _beside(context, request, triggers, runs)
    return known._replace(undone=await undone(context, request, triggers, COUNTED))


async def undone(
    context: Context, request: Request, triggers: Sequence[Trigger], most: int
) -> dict[str, Sequence[str]]:
    """What was not carried out of the newest `most` intents and runs of each trigger, by signature, in words."""
    sigs = [each.sig.raw for each in triggers]
    moment, client = (
        Moment(context.clock.now_ms(), context.settings.settlement_grace_s),
        context.clients.address(request),
    )
    reader = context.list_reader()
    intents = await count_intents(reader, sigs, most, moment, client)
    runs = await count_runs(reader, sigs, most, moment.now_ms, client)
    said = {each.sig: (intents[each.sig.raw].words("intent"), runs[each.sig.raw].words("run")) for each in triggers}
    return {sig: [each for each in words if each] for sig, words in said.items()}


async def of_intents(context: Context, request: Request, intents: Sequence[AnyIntent]) -> Beside:
    """Of at most a hundred intents. Their triggers may be registered elsewhere: those are left out."""
    return await _beside(context, request, await _named(context, request, map(sig_of, intents)), {})


async def of_runs(context: Context, request: Request, runs: Sequence[Run]) -> Beside:
    """Of at most a hundred runs."""
    return await _beside(context, request, await _named(context, request, (each.trigger_sig for each in runs)), {})


async def _named(context: Context, request: Request, texts: Iterable[str]) -> list[Trigger]:
    """The triggers of these signatures, as far as they are registered here."""
    sigs = _read_sigs(texts)
    if not sigs:
        return []
    query = TriggerQuery(sigs=sigs, limit=len(sigs))
    return (await reading.listing(list_triggers, context, request, query, Trigger)).records


async def signed(context: Context, functions: Sequence[Function]) -> dict[bytes, Signed]:
    """How many active triggers each function has, and of how many signers, by the digest of its CID."""
    digests = [each.cid.digest for each in functions]
    return await count_by_function(context.list_reader(), digests, SIGNED_MAX)


def sig_of(intent: AnyIntent) -> str:
    """The signature of the trigger of an intent."""
    return str(intent.config_sig if isinstance(intent, Intent) else intent.trigger_sig)


async def _beside(
    context: Context, request: Request, triggers: Sequence[Trigger], runs: Mapping[str, Run]
) -> Beside:  # fmt: skip
    cids = list({cid.digest: cid for cid in (Cid.parse(str(each.function_cid)) for each in triggers)}.values())
    functions: list[Function] = []
    if cids:
        query = FunctionQuery(cids=cids, limit=len(cids))
        functions = (await reading.listing(list_functions, context, request, query, Function)).records
    return Beside(
        Tokens(context.chains, context.holdings.tokens),
        context.chains,
        {each.cid.digest: each for each in functions},
        runs,
        {str(each.sig): each for each in triggers},
        {},
    )


def _read_sigs(texts: Iterable[str]) -> list[Signature]:
    found: dict[str, Signature] = {}
    for text in texts:
        try:
            found.setdefault(text, Signature.parse(text))
        except InvalidSignature:  # the settlement contract hashes any bytes
            continue
    return list(dict.fromkeys(found.values()))
