"""Costs of operations, and the stage of overload at which they are refused."""

from __future__ import annotations

from muniment.protocol.evm.signature import Signature
from muniment.service.app.operations import OPERATIONS
from muniment.service.http.paging import PageQuery
from muniment.service.resources.intents.queries import IntentQuery
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.running.limits.costs import CONTENT, DEACTIVATION, PAGE, TOKEN_READ, UNIT_NS, UPLOAD, Shed

COSTS = {f"{each.method} {each.path}": each.cost for each in OPERATIONS}
SHEDS = {f"{each.method} {each.path}": each.sheds for each in OPERATIONS}


def test_a_page_costs_more_by_its_limit_its_offset_and_its_list() -> None:
    assert [PageQuery(limit=limit).units for limit in (1, 15, 16, 100)] == [0, 0, 1, 6]
    assert [PageQuery(offset=offset).units for offset in (127, 128, 1_000, 100_000, 2**62)] == [0, 1, 7, 781, 781]
    sigs = [Signature.parse("0x" + f"{number:02x}" * 64 + "1b") for number in range(1, 101)]
    assert TriggerQuery(sigs=sigs, limit=100).units == 6 + 25
    assert IntentQuery(limit=100).units == 20


def test_content_costs_a_unit_more_for_each_64_kib() -> None:
    assert [CONTENT.units + CONTENT.owed(sent=size) for size in (1, 65_536, 16 * 2**20)] == [1, 2, 257]


def test_a_deactivation_costs_two_units_for_each_signature() -> None:
    listed = len('"0x' + "ab" * 65 + '",')
    assert DEACTIVATION.owed(received=listed) == 2
    assert 200 <= DEACTIVATION.owed(received=100 * listed) <= 204


def test_an_upload_costs_its_cpu_time() -> None:
    assert UPLOAD.owed(cpu_ns=2_000_000) == 2_000_000 // UNIT_NS == 80
    assert PAGE.owed(cpu_ns=2_000_000) == 0


def test_health_and_metrics_are_counted_separately_and_never_refused_under_overload() -> None:
    about_health = {name for name, cost in COSTS.items() if cost.policy == "health"}
    assert about_health == {"GET /healthz", "GET /readyz", "GET /metrics"}
    assert {SHEDS[name] for name in about_health} == {Shed.NEVER}


def test_nothing_is_free() -> None:
    free = {name for name, cost in COSTS.items() if cost.units == 0}
    assert free == {"GET /events/stream"}, "a stream is charged by its handler: a refusal is no 429 there"


def test_a_deactivation_is_never_refused_and_has_its_own_policy() -> None:
    assert SHEDS["POST /triggers/deactivate"] is Shed.NEVER
    assert SHEDS["POST /triggers/deactivate/sign-params"] is Shed.NEVER
    assert {name for name, cost in COSTS.items() if cost.policy == "stop"} == {"POST /triggers/deactivate"}


def test_log_in_has_its_own_policy() -> None:
    asking = {name for name, cost in COSTS.items() if cost.policy == "login"}
    assert asking == {"POST /users/nonce", "POST /users/authenticate"}


def test_writes_of_operators_are_never_refused_under_overload() -> None:
    written = [name for name in SHEDS if name.split()[1].startswith("/intents") and not name.startswith("GET")]
    assert len(written) == 4
    assert {SHEDS[name] for name in written} == {Shed.NEVER}


def test_listings_are_distinguished_from_single_records() -> None:
    listings = {"GET /triggers", "GET /intents", "GET /executions", "GET /functions", "GET /events"}
    assert {name for name, shed in SHEDS.items() if shed is Shed.PAGE} == listings
    assert {name for name in listings if not COSTS[name].sent_bytes_per_unit} == set()


def test_a_write_with_a_token_costs_as_much_as_a_read_with_a_token() -> None:
    for name in ("POST /users/api-key/rotate", "POST /users/{address}/data", "GET /users/{address}/data"):
        assert COSTS[name].units == TOKEN_READ.units
