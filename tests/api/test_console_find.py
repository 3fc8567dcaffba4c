"""The search box: names of functions, and the beginnings of identifiers."""

from __future__ import annotations

from urllib.parse import urljoin

import httpx2
import pytest

from builders import Bundle, Wallet, deploy
from console_world import World
from muniment.service.console.pages import find
from muniment.service.context import Context
from muniment.service.resources.intents import store as intents
from muniment.service.resources.triggers import store as triggers
from page_site import Outline


async def found(reader: httpx2.AsyncClient, given: str) -> str:
    """Where the search box leads to: a path of the console, or the text of its own page."""
    answer = await reader.get("/console/find", params={"q": given})
    if answer.status_code == 303:
        return urljoin("/console/find", answer.headers["location"]).removeprefix("/console/")
    assert answer.status_code == 200, answer.text
    return " ".join(Outline(answer.text[answer.text.index("<main") :]).text.split())


async def test_a_name_leads_to_its_function_or_lists_several(reader: httpx2.AsyncClient, world: World) -> None:
    assert await found(reader, "thresh") == f"functions/{world.cids['Threshold']}"
    assert await found(reader, " SWEEP rew ") == f"functions/{world.cids['Sweep rewards']}"
    second = await deploy(reader, Bundle("Threshold", "0.4.0", "The next version"), Wallet(9))
    listed = await found(reader, "Threshold")
    assert "0.3.1" in listed
    assert "0.4.0The next version" in listed
    assert f"{second[:6]}…{second[-6:]}" in listed
    for nothing in ("t", "threshold of", "x" * 200, "%%", "\u202e\u202e"):
        assert "No function has a name that begins so" in await found(reader, nothing), nothing
    assert "<script>" not in (await reader.get("/console/find?q=%3Cscript%3E")).text


async def test_the_first_hex_digits_find_what_begins_with_them(reader: httpx2.AsyncClient, world: World) -> None:
    sig, signer = world.triggers[0]["sig"], world.triggers[0]["signer"]
    assert await found(reader, sig[:8]) == f"triggers/{sig}"
    assert await found(reader, sig[2:33].upper()) == f"triggers/{sig}"  # an odd number of digits, without 0x
    assert await found(reader, sig[:-1]) == f"triggers/{sig}"
    assert await found(reader, signer[:10].lower()) == f"addresses/{signer}"
    assert await found(reader, world.intents["failed"][0][:12]) == f"intents/{world.intents['failed'][0]}"
    assert await found(reader, world.runs["intents"][:12]) == f"runs/{world.runs['intents']}"
    assert "No function has a name that begins so" in await found(reader, sig[:7])  # too few


async def test_a_beginning_of_several_lists_them(
    reader: httpx2.AsyncClient, world: World, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "_PREFIX_MIN", 1)
    sigs = sorted(each["sig"] for each in world.triggers)
    signers = sorted({each["signer"].lower() for each in world.triggers})
    hashes = sorted(f"0x{each.hex()}" for (each,) in await context.database.fetch("SELECT hash FROM intents"))
    for digit in "0123456789abcdef":
        of_digit = [[each for each in kind if each[2] == digit] for kind in (sigs, signers, hashes)]
        read = [
            await triggers.find_by_prefix(context.database, digit, 50),
            await triggers.signers_by_prefix(context.database, digit, 50),
            await intents.find_by_prefix(context.database, digit, 50),
        ]
        assert [[f"0x{each.hex()}" for each in kind] for kind in read] == of_digit
        if sum(map(len, of_digit)) > 1:
            shown = await found(reader, digit)
            assert all(f"{each[:8]}…" in shown for each in [*of_digit[0][:5], *of_digit[2][:5]])
            assert ("Signers" in shown, "Triggers" in shown) == (bool(of_digit[1]), bool(of_digit[0]))
    assert len(await intents.find_by_prefix(context.database, hashes[0][2:3], 1)) == 1
    assert len(await triggers.signers_by_prefix(context.database, signers[0][2:3], 1)) == 1
