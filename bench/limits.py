"""Rate limits: what a charge takes, and what operations cost beside what they declare. Also alone: `limits.py`."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from in_process import get, post, unlimited
from muniment.app import OPERATIONS, Application, build_context
from muniment.errors import LoginFailed, SignatureMismatch
from muniment.evm.address import Address
from muniment.functions.store import NewFunction, insert
from muniment.http.paging import PageQuery
from muniment.ipfs.cid import Cid
from muniment.limits.costs import DEBTS
from muniment.limits.limiter import Limiter
from muniment.limits.memory import Memory
from muniment.limits.policies import parse_policies
from muniment.wire import encode
from samples import CID, INPUTS, SIGNER, forged, signed_triggers

ROUNDS, CALLS, CHARGES = 9, 60, 200
READ = "GET /triggers/{sig}"

Micros = dict[str, float]


def measure_charges() -> Micros:
    """Microseconds of one call, the least of many rounds: others on the machine only ever add to it."""
    policies = parse_policies({"client": "100000/1s", "login": "1/24h", "owner": "off", "stop": "off"})
    limiter = Limiter(policies, Memory.of_process(), time.monotonic_ns, unix_s=lambda: 0)
    client, site = limiter.client("192.0.2.1"), limiter.client("2001:db8::1")
    signed = client.signed(b"\1" * 20)
    client.login.charge(1)
    calls: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "clock": time.monotonic_ns,
        "IPv4": lambda: client.client.charge(1),
        "IPv6": lambda: site.client.charge(1),
        "signed": lambda: signed.charge(1),
        "refused": lambda: client.login.charge(1),
        "fields": lambda: client.client.lines,
    }
    return {name: min(_micros(call) for _ in range(1_000)) for name, call in calls.items()}


def _micros(call: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    for _ in range(CHARGES):
        call()
    return (time.perf_counter_ns() - started) / 1_000 / CHARGES


def measure_costs() -> dict[str, tuple[int, float]]:
    """Request to the units that it declares, and its CPU time in single reads: the median of some rounds."""
    return asyncio.run(_measure_costs())


async def _measure_costs() -> dict[str, tuple[int, float]]:
    with TemporaryDirectory() as folder:
        context = build_context(replace(unlimited(Path(folder)), log_level="error"))
        await context.database.migrate()
        function = NewFunction(Cid.parse(CID).digest, bytes(32), dict(INPUTS), context.now_ms(), "{}")
        await context.database.write(lambda tx: insert(tx, function, Address.parse(SIGNER), "Benchmark", "1.0.0"))
        app = Application(context)
        bodies = signed_triggers(range((ROUNDS + 1) * CALLS))
        await asyncio.gather(*(post(app, "/triggers", body) for body in bodies[:CALLS]))
        micros: dict[str, list[float]] = {}
        for round_number in range(1, ROUNDS + 1):
            new = bodies[round_number * CALLS : (round_number + 1) * CALLS]
            for name, requests in _requests(app, bodies[:CALLS], new).items():
                started = time.process_time_ns()
                await asyncio.gather(*requests)
                micros.setdefault(name, []).append((time.process_time_ns() - started) / 1_000 / CALLS)
        await context.database.close()
    read = statistics.median(micros[READ])
    return {name: (_declared(name), statistics.median(each) / read) for name, each in micros.items()}


def _requests(app: Application, stored: list[bytes], new: list[bytes]) -> dict[str, list[Awaitable[Any]]]:
    """As many requests of each kind as there are `new` triggers. A failed log-in owes more than it declares."""
    sigs: list[str] = [json.loads(body)["sig"] for body in stored]
    typed: dict[str, Any] = json.loads(stored[0])["typedData"]["values"]
    asked = encode({name: typed[name] for name in ("functionCid", "version", "input", "config")})
    nonce, login = encode({"address": SIGNER}), encode({"address": SIGNER, "signature": sigs[0]})
    return {
        READ: [get(app, f"/triggers/{sig}") for sig in sigs],
        "GET /triggers": [get(app, "/triggers") for _ in new],
        "GET /triggers limit=100": [get(app, "/triggers?limit=100") for _ in new],
        "POST /triggers": [post(app, "/triggers", body) for body in new],
        "POST /triggers/sign-params": [post(app, "/triggers/sign-params", asked) for _ in new],
        "POST /triggers/preview": [post(app, "/triggers/preview", asked) for _ in new],
        "POST /users/nonce": [post(app, "/users/nonce", nonce) for _ in new],
        "POST /users/authenticate failed": [post(app, "/users/authenticate", login, 401) for _ in new],
        "POST /triggers forged": [post(app, "/triggers", forged(), 400) for _ in new],
    }


def _declared(name: str) -> int:
    """The units of a request's operation, of its page, and of its failure."""
    method, path, *more = name.split()
    cost = next(each.cost for each in OPERATIONS if (each.method, each.path) == (method, path))
    limit = int(more[0].removeprefix("limit=")) if more and more[0].startswith("limit=") else 10
    asked = PageQuery(limit=limit).units if (method, path) == ("GET", "/triggers") else 0
    debts = {"failed": DEBTS[LoginFailed], "forged": DEBTS[SignatureMismatch]}
    return cost.units + asked + (debts.get(more[0], 0) if more else 0)


def show(charges: Micros, costs: dict[str, tuple[int, float]]) -> None:
    """Print both; a cost that is not within a factor of two of what was measured is marked."""
    print("A charge against a rate limit, microseconds (the least of a thousand rounds)")
    for name, micros in charges.items():
        print(f"  {name:32}{micros:8.2f}")
    print("\nUnits that a request declares, and its CPU time in single reads")
    for name, (declared, measured) in costs.items():
        mark = "" if measured / 2 <= declared <= measured * 2 else "  more than a factor of two apart"
        print(f"  {name:32}{declared:8}{measured:8.1f}{mark}")


if __name__ == "__main__":
    show(measure_charges(), measure_costs())
