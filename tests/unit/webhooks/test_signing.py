"""Keys and signatures of webhooks, against the test vectors of Standard Webhooks and its library for Python."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook as Verifier, WebhookVerificationError

from each_row import each_row
from muniment.service.auth.secrets import ring_of
from muniment.service.resources.webhooks.sending import HookKey, Signers, newest_secret_id, signed_fields, signers_of
from muniment.service.resources.webhooks.store import Hook

OLD, NEW = b"\x01" * 32, b"\x02" * 32
NOW_MS = 1_795_204_080_123
# Secret, id, time in Unix seconds, body and signature: the specification's repository has both.
VECTORS = [
    (
        "plJ3nmyCDGBKInavdOK15jsl", "msg_loFOjxBNrRLzqYUf", 1731705121,
        b'{"event_type":"ping","data":{"success":true}}', "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
    ),
    (
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
        b'{"test": 2432232314}', "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
]  # fmt: skip
HOOK = Hook(
    id=b"\x0a" * 16, operator="relayer", url="https://hooks.example.org/", types=None, filters=None,
    is_batched=False, status="active", reason=None, secret_id=newest_secret_id([OLD]), key_generation=1,
    old_secret_id=None, old_until_ms=None, epoch=1, seq=2, due_at_ms=0, failures=0, failing_since_ms=None, refused=0,
    revision=0, redirects=0, created_at_ms=0,
)  # fmt: skip


def signatures(signers: Signers, body: bytes = b"{}", timestamp_s: int = NOW_MS // 1000) -> list[str]:
    fields = dict(signed_fields(signers, "ZS0wYmFkY2FmZS0xMDA", timestamp_s, body))
    return fields["webhook-signature"].split(" ")


@each_row(("secret", "message_id", "timestamp_s", "body", "signature"), VECTORS)
def test_a_signature_is_that_of_the_test_vector(
    secret: str, message_id: str, timestamp_s: int, body: bytes, signature: str
) -> None:
    signers = Signers(HookKey(b64decode(secret)), None)
    fields = dict(signed_fields(signers, message_id, timestamp_s, body))
    assert fields["webhook-signature"] == signature
    assert (fields["webhook-id"], fields["webhook-timestamp"]) == (message_id, str(timestamp_s))


def test_each_hook_generation_and_secret_has_a_key_of_its_own() -> None:
    hooks = [HOOK, replace(HOOK, key_generation=2), replace(HOOK, id=b"\x0b" * 16)]
    found = [signers_of([NEW, OLD], hook, NOW_MS) for hook in hooks]
    found.append(signers_of([NEW, OLD], replace(HOOK, secret_id=newest_secret_id([NEW])), NOW_MS))
    texts = [each.current.secret_text for each in found if each]
    assert len(texts) == len(set(texts)) == 4
    again = signers_of([OLD], HOOK, NOW_MS)
    assert again is not None
    assert again.current.secret_text == texts[0]


def test_a_hook_whose_secret_was_retired_has_no_keys() -> None:
    assert signers_of([NEW], HOOK, NOW_MS) is None


def test_the_library_verifies_with_the_old_and_the_new_secret_and_the_current_signature_is_last() -> None:
    rotated = replace(
        HOOK, secret_id=newest_secret_id([NEW]), key_generation=2, old_secret_id=HOOK.secret_id, old_until_ms=NOW_MS + 1
    )
    signers = signers_of([NEW, OLD], rotated, NOW_MS)
    assert signers is not None
    assert signers.old is not None
    now_s = int(datetime.now(UTC).timestamp())
    given = signatures(signers, b'{"a":1}', now_s)
    assert [each.partition(",")[0] for each in given] == ["v1", "v1"]
    fields = {
        "webhook-id": "ZS0wYmFkY2FmZS0xMDA", "webhook-timestamp": str(now_s), "webhook-signature": " ".join(given),
    }  # fmt: skip
    for key in (signers.current, signers.old):
        assert Verifier(key.secret_text).verify(b'{"a":1}', fields) == {"a": 1}
        with pytest.raises(WebhookVerificationError):
            Verifier(key.secret_text).verify(b'{"a":2}', fields)
    # A library that looks only after the last comma finds the current one.
    last = Verifier(signers.current.secret_text).sign(
        "ZS0wYmFkY2FmZS0xMDA", datetime.fromtimestamp(now_s, UTC), '{"a":1}'
    )
    assert given[-1] == last
    assert (after := signers_of([NEW, OLD], rotated, NOW_MS + 1)) is not None
    assert after.old is None


def test_keys_do_not_reach_a_log() -> None:
    signers = signers_of([OLD], HOOK, NOW_MS)
    assert signers is not None
    assert repr(signers) == "Signers(current=HookKey(), old=None)"
    assert ring_of((OLD,)).newest.id == HOOK.secret_id
