"""The check of a webhook's signature in docs/use/webhooks.md, run by Node.js."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from javascript import NODE_TESTS, run_script

from muniment.service.resources.webhooks.sending import HookKeys, Signers, signed_fields

pytestmark = NODE_TESTS

PAGE = Path(__file__).parents[2] / "docs" / "use" / "webhooks.md"
(CHECK,) = [
    block
    for block in re.findall(r"^```js\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    if "isSigned" in block
]
# It answers for each of several bodies and lists of keys.
ASK = """
import { readFileSync } from 'node:fs'
const { headers, asked } = JSON.parse(readFileSync(0, 'utf-8'))
console.log(JSON.stringify(asked.map(([body, keys]) => isSigned(Buffer.from(body), headers, keys))))
"""


def test_the_check_with_the_public_key_takes_signed_requests_alone(tmp_path: Path) -> None:
    script = tmp_path / "check.mjs"
    script.write_text(CHECK + ASK)
    ours, other = (HookKeys(b"m" * 32, Ed25519PrivateKey.from_private_bytes(bytes((n,)) * 32)) for n in (1, 2))
    headers = dict(signed_fields(Signers(ours, other), "ZS0wYmFkY2FmZS0xMDA", 1_795_204_080, b'{"a":1}'))
    stranger = HookKeys(b"m" * 32, Ed25519PrivateKey.from_private_bytes(b"\x03" * 32))
    asked = [
        ('{"a":1}', [stranger.public_text, ours.public_text]),
        ('{"a":1}', [other.public_text]),
        ('{"a":1}', [stranger.public_text]),
        ('{"a":2}', [ours.public_text]),
    ]
    given = {"headers": headers, "asked": asked}
    assert json.loads(run_script(str(script), given=given)) == [True, True, False, False]
