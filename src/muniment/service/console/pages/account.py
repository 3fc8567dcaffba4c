"""The home of an owner: what runs in the name of an address, what went wrong, and its account."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from muniment.protocol.errors import Invalid
from muniment.protocol.evm.address import Address
from muniment.protocol.functions.types import Function
from muniment.protocol.intents.types import Intent
from muniment.protocol.ipfs.cid import BundleCid, cid_v0
from muniment.protocol.runs.outcomes import UNDONE, why_intent_undone
from muniment.protocol.triggers.typed_data import CRON, EVENT
from muniment.protocol.triggers.types import TRIGGER_SIGS_MAX, Trigger
from muniment.protocol.wire import ms_of
from muniment.service.console import beside, reading
from muniment.service.console.brief import intent_line, next_run_ms, trigger_line, when
from muniment.service.console.counts import nobody
from muniment.service.console.page import page
from muniment.service.console.parts import action, dated, heading, identifier, link, relative, state, until
from muniment.service.console.rows import brief_text, outcome, said, undone
from muniment.service.console.words import clipped
from muniment.service.context import Context
from muniment.service.http.html.frame import Page, root_from
from muniment.service.http.html.markup import NOTHING, Html, html, seen, strange
from muniment.service.http.request import Request
from muniment.service.resources.functions.routes import list_functions
from muniment.service.resources.functions.store import FunctionQuery
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.resources.triggers.routes import list_triggers
from muniment.service.resources.triggers.store import FUNCTIONS_OF_MAX, fetch_functions_of, fetch_protocols

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.protocol.intents.types import AnyIntent
    from muniment.service.console.beside import Beside

# Of the rows of a hundred triggers and what came of each, in addition to the cost of a page and of its queries.
_HOME_UNITS: Final = 900
_WEEK_MS: Final = 7 * 86_400_000
# Intents of the last week that the page shows, of each status of those that were not carried out.
_SHOWN_MAX: Final = 10
# Of a log line that gives the reason for a failure.
_REASON_LENGTH_MAX: Final = 300
_BAD_LEVELS: Final = ("warning", "error", "critical")
# `0x` and 130 digits.
_SIGNATURE_LENGTH: Final = 132
# An address with spaces around it, percent-encoded.
_QUERY_LENGTH_MAX: Final = 400


@page("/console/account")
async def account_page(context: Context, request: Request) -> Page:
    """What runs in the name of the `address` in the query, and the places that a script fills after a log-in.

    Without an address it asks for one; a script leads to that of the wallet. `functionCid` in the query leaves the
    triggers of other functions out.
    """
    asked = parse_qs(request.query[:_QUERY_LENGTH_MAX].decode("ascii", "replace"))
    given, chosen = (asked.get(name, [""])[0].strip() for name in ("address", "functionCid"))
    root, lifetime = root_from(request.path), context.settings.token_lifetime_s
    try:
        address = Address.parse(given) if given else None
        fault = ""
    except Invalid as refusal:
        address, fault = None, refusal.detail
    if address is None:
        return Page("Account", _asking(given, fault, lifetime, root), "account", scripts=("account.js",))
    function = BundleCid.parse(chosen) if chosen else None
    request.due_units += _HOME_UNITS
    owned = await _Owned.read(context.of_primary(), request, address, function)  # a script asks again after a stop
    body = html(
        '{}<p>{}</p>{}{}{}{}'
        '<div id="account" data-address="{}" data-lifetime="{}"><div class="who"></div><div id="private">'
        '<p class="faint">Balances, API key and profile need a log-in with a wallet, and so a script. '
        "Without one, use <code>muniment login</code>.</p></div></div>",
        heading("Account", end=action(f"{root}console/triggers/new", "Sign a trigger"), level=1),
        identifier(address, f"{root}console/addresses/{address}", whole=True),
        await nobody(context), owned.triggers(root), owned.failures(root), heading("Log-in"),
        address, lifetime,
    )  # fmt: skip
    json = f"{root}triggers?signer={address}&active=true{f'&functionCid={chosen}' if chosen else ''}"
    return Page(f"Account {address}", body, "account", json, ("account.js", "owned.js"))


def _asking(given: str, fault: str, lifetime_s: int, root: str) -> Html:
    mark = html(' aria-invalid="true" aria-describedby="fault"') if fault else NOTHING
    words = html(
        '<p class="bad" id="fault">{}. Copy the address from your wallet.</p>', strange(fault[:1].upper() + fault[1:])
    )
    return html(
        '<h1>Account</h1><p>See what runs in the name of a wallet, and stop it.</p><div id="account" '
        'data-lifetime="{}"></div><form action="account"><label><span>Or look at an address</span><input '
        'name="address" value="{}" class="long" placeholder="0x…" spellcheck="false" autocomplete="off"{}></label>{}'
        '<p><button>Show</button></p></form><p class="faint">Triggers need no log-in: they are signed one by one. '
        '<a href="{}console/triggers/new">Sign a trigger</a></p>',
        lifetime_s, given, mark, words if fault else None, root,
    )  # fmt: skip


class _Owned:
    """The active triggers of an address, and its intents of the last week that were not carried out."""

    def __init__(self, address: Address, now_ms: int, known: Beside, active: Sequence[Trigger]) -> None:
        self._address, self._now_ms, self._known, self._active = address, now_ms, known, active
        self._has_more = False
        self._functions: Sequence[Function] = ()
        self._chosen: BundleCid | None = None
        self._protocols: Mapping[str, str] = {}
        self._undone: Sequence[AnyIntent] = ()

    @classmethod
    async def read(cls, context: Context, request: Request, address: Address, chosen: BundleCid | None) -> _Owned:
        """Read them from the answers of the API; the triggers are those of the `chosen` function, if there is one."""
        query = TriggerQuery(signer=address, function_cid=chosen, active=True, limit=TRIGGER_SIGS_MAX)
        found = await reading.listing(list_triggers, context, request, query, Trigger)
        known = await beside.of_triggers(context, request, found.records)
        owned = cls(address, context.clock.now_ms(), known, found.records)
        owned._has_more = bool(found.next)
        owned._functions = await _functions(context, request, address)
        owned._chosen = chosen
        owned._protocols = await _protocols(context, owned._active)
        failures: list[AnyIntent] = []
        for status in UNDONE:
            query = IntentQuery(
                user=address, status=status, created_after=max(owned._now_ms - _WEEK_MS, 0), limit=_SHOWN_MAX,
                generation="all",
            )  # fmt: skip
            failures += (await reading.intents(context, request, query)).records
        owned._undone = sorted(failures, key=lambda each: ms_of(each.created_at), reverse=True)
        return owned

    def triggers(self, root: str) -> Html:
        """The active triggers: each can be stopped, or several at once."""
        listed = f"{root}console/triggers?signer={self._address}"
        if self._chosen:
            listed += f"&functionCid={self._chosen}"
        count = f"{len(self._active):,}{'+' if self._has_more else ''}"
        title = html(
            "{}{}",
            heading(html("Active triggers <small>{}</small>", count), end=link(f"{listed}&active=false", "Ended ones")),
            self._choice() if self._chosen or len(self._functions) > 1 else None,
        )
        if not self._active:
            what = "Nothing of this function" if self._chosen else "Nothing"
            new = html('<a href="{}console/triggers/new">Sign a trigger</a>', root)
            return html('{}<p class="empty">{} runs in the name of this address. {}</p>', title, what, new)
        more = html(
            '<p class="faint">The newest {}. <a href="{}&active=true">All of them</a></p>', TRIGGER_SIGS_MAX, listed
        )
        return html(
            '{}<div class="stops"><label class="all"><input type="checkbox" id="all" autocomplete="off"> All</label>'
            '<button type="button" class="danger" id="stop" disabled>Stop the chosen</button>'
            '<span id="stop-told" class="bad" role="status"></span></div>'
            "<noscript><p>Without a script, <code>muniment triggers deactivate</code> stops them.</p></noscript>"
            '<ul class="owned" aria-label="Active triggers">{}</ul>{}',
            title, [self._row(each, root) for each in self._active], more if self._has_more else None,
        )  # fmt: skip

    def _choice(self) -> Html:
        """The form that shows the triggers of one function alone."""
        named = {each.cid.digest: (f"{each.name} {each.version}", str(each.cid)) for each in self._functions}
        if self._chosen and self._chosen.digest not in named:
            named[self._chosen.digest] = (str(self._chosen), str(self._chosen))
        texts = Counter(text for text, _ in named.values())
        options = [
            html(
                '<option value="{}"{}>{}</option>', cid,
                html(" selected") if self._chosen and digest == self._chosen.digest else NOTHING,
                seen(text if texts[text] == 1 else f"{text} ({cid})"),
            )
            for digest, (text, cid) in sorted(named.items(), key=lambda each: (each[1][0].casefold(), each[1]))
        ]  # fmt: skip
        note = html('<span class="faint">Only a hundred functions are listed here.</span>')
        return html(
            '<form action="account" class="choice" aria-label="Triggers of one function">'
            '<input type="hidden" name="address" value="{}"><label>Function <select name="functionCid">'
            '<option value="">any</option>{}</select></label><button>Show</button>{}</form>',
            self._address, options, note if len(self._functions) >= FUNCTIONS_OF_MAX else None,
        )  # fmt: skip

    def _row(self, trigger: Trigger, root: str) -> Html:
        name, last = self._name(trigger), self._known.runs.get(trigger.sig)
        does = trigger_line(trigger, self._known.tokens, self._known.chains)
        return html(
            '<li data-sig="{}" data-protocol="{}"><input type="checkbox" autocomplete="off" aria-label="Choose {}">'
            '<div class="what"><a href="{}console/triggers/{}"><strong>{}</strong> · {}</a>{}'
            '<div class="faint">“{}”</div></div>'
            '<div class="next"><div>{}</div><div>{}</div>{}</div><button type="button" class="danger">Stop</button>',
            trigger.sig, self._protocols.get(trigger.sig, ""), seen(name or str(trigger.function_cid)),
            root, trigger.sig, strange(name) if name else html("<code>{}</code>", str(trigger.function_cid)[:12] + "…"),
            when(trigger.config, self._known.chains), html('<div class="does">{}</div>', does) if does else None,
            brief_text(trigger.description),
            self._next(trigger),
            html(
                'last {} {} <span class="faint">{}</span>', state(outcome(last)), said(last),
                relative(last.timestamp, self._now_ms),
            ) if last else html('<span class="faint">no run recorded</span>'),
            undone(self._known.undone.get(trigger.sig, ())),
        )  # fmt: skip

    def _next(self, trigger: Trigger) -> Html:
        if trigger.config["type"] == CRON:
            run_ms = next_run_ms(trigger, self._now_ms)
            return self._due("next", "due", run_ms) if run_ms else html("no run before it ends")
        if trigger.config["type"] == EVENT:
            return html("with the next event")
        start_ms = int(trigger.config["startDate"]) or ms_of(trigger.created_at)
        return self._due("due", "was due", start_ms)

    def _due(self, words: str, then: str, at_ms: int) -> Html:
        said = until(words, then, at_ms) if at_ms > self._now_ms else html("{}", then)
        return html("{} {}", said, dated(at_ms, self._now_ms))

    def _name(self, trigger: Trigger) -> str:
        """The name of the function; empty if it is not registered here."""
        function = self._known.function(str(trigger.function_cid))
        return function.name if function else ""

    def failures(self, root: str) -> Html:
        """The intents of the last week that were not carried out, each with the reason."""
        links = [link(f"{root}console/intents?user={self._address}&status={each}", f"All {each}") for each in UNDONE]
        title = heading(
            "Not carried out in the last week", end=html("<span>{}</span>", [html("{} ", each) for each in links])
        )
        if not self._undone:
            return html('{}<p class="empty">None of this address.</p>', title)
        lines = [
            html(
                '<li><a href="{}console/intents/{}">{}</a>{} <span class="faint">{}</span><div class="reason">{}</div>',
                root, each.hash, intent_line(each, self._known.tokens), self._trigger_of(each, root),
                relative(ms_of(each.created_at), self._now_ms), reason(each),
            )
            for each in self._undone
        ]  # fmt: skip
        more = html('<p class="faint">At most {} of each status.</p>', _SHOWN_MAX)
        has_more = max(Counter(each.status for each in self._undone).values()) >= _SHOWN_MAX
        return html(
            '{}<ul class="failed-intents" aria-label="Intents that were not carried out">{}</ul>{}', title, lines,
            more if has_more else None,
        )  # fmt: skip

    def _trigger_of(self, intent: AnyIntent, root: str) -> Html | None:
        """The trigger that led to an intent, by the name of its function where it is still active."""
        sig = str(intent.config_sig if isinstance(intent, Intent) else intent.trigger_sig)
        if len(sig) != _SIGNATURE_LENGTH:
            return None
        listed = next((each for each in self._active if each.sig == sig), None)
        name = self._name(listed) if listed else None
        href = f"{root}console/triggers/{sig}"
        return html(" · {}", html('<a href="{}">{}</a>', href, strange(name)) if name else identifier(sig, href))


def reason(intent: AnyIntent) -> Html:
    """Why an intent was not carried out, and the newest log line that warns or tells of an error."""
    bad = [each for each in intent.logs if each.level in _BAD_LEVELS]
    why = html('<span class="state {}">{}</span>', intent.status, why_intent_undone(intent))
    if not bad:
        return why
    text = max(bad, key=lambda each: ms_of(each.created_at)).data
    return html("{}: {}", why, strange(clipped(text, _REASON_LENGTH_MAX)))


async def _functions(context: Context, request: Request, signer: Address) -> Sequence[Function]:
    """The functions of the live triggers of an address, as far as this registry has them."""
    digests = await fetch_functions_of(context.database, signer)
    if not digests:
        return ()
    query = FunctionQuery(cids=[cid_v0(each) for each in digests], limit=len(digests))
    return (await reading.listing(list_functions, context, request, query, Function)).records


async def _protocols(context: Context, triggers: Sequence[Trigger]) -> dict[str, str]:
    """The name of the registry under which each trigger was signed: a renamed registry has triggers under several."""
    sigs = [each.sig for each in triggers]
    found = await fetch_protocols(context.database, sigs) if sigs else {}
    return {sig: found.get(sig.raw, "") for sig in sigs}
