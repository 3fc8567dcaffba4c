"""GET /triggers/{sig}: every spelling of a signature, and the ETag that changes with a deactivation."""

from __future__ import annotations

import httpx2
import pytest
from trigger_world import check_refusal, high_twin

from builders import TriggerDraft, Wallet, deploy, register

UNKNOWN = "0x" + "1" * 128 + "1b"


async def test_every_spelling_of_a_signature_finds_the_record(client: httpx2.AsyncClient) -> None:
    trigger = await register(client, TriggerDraft(await deploy(client)))
    sig = trigger["sig"]
    from_zero = f"{sig[:130]}{int(sig[130:], 16) - 27:02x}"
    for spelling in (sig, "0x" + sig[2:].upper(), from_zero, f"0%78{sig[2:]}"):
        response = await client.get(f"/triggers/{spelling}")
        assert response.json() == trigger
        assert response.headers["etag"] == (await client.get(f"/triggers/{sig}")).headers["etag"]


NO_SIGNATURES = (
    UNKNOWN[:-2], UNKNOWN + "00", "0X" + UNKNOWN[2:], UNKNOWN[2:], UNKNOWN + "%00", UNKNOWN + "%20",
    UNKNOWN + "%", "%3", "%zz", "%ff", "0x", "x",
    high_twin(Wallet().sign_text("x")), "0x" + "0" * 128 + "1b", "%D9%A3" * 132,
)  # fmt: skip


@pytest.mark.one_engine
async def test_a_text_that_is_not_a_signature_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for sig in NO_SIGNATURES:
        with subtests.test(sig):
            response = await client.get(f"/triggers/{sig}")
            check_refusal(response, 400, response.json()["code"], parameter="sig")
            assert response.json()["code"] in {"invalid-signature", "invalid-parameter"}


async def test_an_unknown_signature_is_not_found(client: httpx2.AsyncClient) -> None:
    check_refusal(await client.get(f"/triggers/{UNKNOWN}"), 404, "trigger-not-found")


async def test_the_etag_saves_the_body_until_the_trigger_is_deactivated(client: httpx2.AsyncClient) -> None:
    trigger = await register(client, TriggerDraft(await deploy(client)))
    path = f"/triggers/{trigger['sig']}"
    etag = (await client.get(path)).headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        response = await client.get(path, headers={"if-none-match": known})
        assert (response.status_code, response.content) == (304, b"")
        assert response.headers["etag"] == etag
    assert (await client.get(path, headers={"if-none-match": '"other"'})).json() == trigger

    signature = Wallet().sign_deactivation([trigger["sig"]])
    body = {"triggerSigs": [trigger["sig"]], "signature": signature}
    assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
    changed = await client.get(path, headers={"if-none-match": etag})
    assert changed.json() == {**trigger, "deactivateSig": signature}
    assert changed.headers["etag"] != etag


async def test_two_triggers_have_two_etags(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    made = [await register(client, TriggerDraft(cid, version=f"{number}.0.0")) for number in range(2)]
    assert len({(await client.get(f"/triggers/{trigger['sig']}")).headers["etag"] for trigger in made}) == 2


async def test_head_answers_the_headers_of_get(client: httpx2.AsyncClient) -> None:
    trigger = await register(client, TriggerDraft(await deploy(client)))
    got, headed = [await client.request(method, f"/triggers/{trigger['sig']}") for method in ("GET", "HEAD")]
    assert headed.content == b""
    for name in ("etag", "content-type", "content-length"):
        assert headed.headers[name] == got.headers[name]
