"""What each operation costs, and when it is refused under overload."""

from __future__ import annotations

import pytest

from muniment.app.operations import OPERATIONS
from muniment.limits.costs import CONTENT, DEACTIVATION, PAGE, TOKEN_READ, UNIT_NS, UPLOAD, Shed

COSTS = {f"{each.method} {each.path}": each.cost for each in OPERATIONS}
SHEDS = {f"{each.method} {each.path}": each.sheds for each in OPERATIONS}


def test_a_page_costs_a_unit_more_for_each_25_records_of_its_limit() -> None:
    assert [PAGE.units + PAGE.owed(records=limit) for limit in (1, 24, 25, 100)] == [1, 1, 2, 5]


def test_content_costs_a_unit_more_for_each_64_kib_that_leave() -> None:
    assert [CONTENT.units + CONTENT.owed(sent=size) for size in (1, 65_536, 16 * 2**20)] == [1, 2, 257]


def test_a_deactivation_costs_two_units_for_each_signature() -> None:
    listed = len('"0x' + "ab" * 65 + '",')
    assert DEACTIVATION.owed(received=listed) == 2
    assert 200 <= DEACTIVATION.owed(received=100 * listed) <= 204


def test_an_upload_costs_its_cpu_time() -> None:
    assert UPLOAD.owed(cpu_ns=2_000_000) == 2_000_000 // UNIT_NS == 80
    assert PAGE.owed(cpu_ns=2_000_000) == 0


@pytest.mark.parametrize("name", ["GET /healthz", "GET /readyz", "GET /metrics"])
def test_health_and_metrics_cost_nothing_and_are_never_refused(name: str) -> None:
    assert COSTS[name].units == 0
    assert SHEDS[name] is Shed.NEVER


def test_nothing_else_is_free() -> None:
    free = {name for name, cost in COSTS.items() if cost.units == 0}
    # A stream is charged by its handler: a refusal is no 429 there.
    assert free - {"GET /events/stream"} == {"GET /healthz", "GET /readyz", "GET /metrics"}


def test_a_deactivation_is_never_refused_and_has_its_own_policy() -> None:
    assert SHEDS["POST /triggers/deactivate"] is Shed.NEVER
    assert SHEDS["POST /triggers/deactivate/sign-params"] is Shed.NEVER
    assert {name for name, cost in COSTS.items() if cost.policy == "stop"} == {"POST /triggers/deactivate"}


def test_logging_in_asks_its_own_policy() -> None:
    asking = {name for name, cost in COSTS.items() if cost.policy == "login"}
    assert asking == {"POST /users/nonce", "POST /users/authenticate"}


def test_writes_of_operators_are_never_refused_under_overload() -> None:
    written = [name for name in SHEDS if name.split()[1].startswith("/intents") and not name.startswith("GET")]
    assert len(written) == 4
    assert {SHEDS[name] for name in written} == {Shed.NEVER}


def test_listings_are_distinguished_from_single_records() -> None:
    assert {name for name, shed in SHEDS.items() if shed is Shed.PAGE} == {
        name for name, cost in COSTS.items() if cost.records_per_unit
    } == {"GET /triggers", "GET /intents", "GET /functions", "GET /events"}  # fmt: skip


def test_a_write_with_a_token_costs_as_much_as_a_read_with_a_token() -> None:
    for name in ("POST /users/api-key/rotate", "POST /users/{address}/data", "GET /users/{address}/data"):
        assert COSTS[name].units == TOKEN_READ.units
