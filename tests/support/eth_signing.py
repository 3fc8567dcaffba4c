"""eth-account, to compare our signatures, hashes and key files with.

Its dependency ckzg has no wheel for Python 3.15. There tests that call it are skipped; all others of
the same module run.
"""

from __future__ import annotations

import sys
from typing import Any, Never

import pytest

REASON = "eth-account cannot be installed on Python 3.15: ckzg, which it needs, has no wheel"
THERE = sys.version_info < (3, 15)
# For a test that calls it in another process.
needs_eth_account = pytest.mark.skipif(not THERE, reason=REASON)

if THERE:
    from eth_account import Account
    from eth_account.messages import encode_defunct, encode_typed_data
else:

    class _Skips:
        def __getattr__(self, name: str) -> Never:
            if name.startswith("_"):  # pytest looks for marks of its own when it collects
                raise AttributeError(name)
            pytest.skip(REASON)

        def __call__(self, *_: object, **__: object) -> Never:
            pytest.skip(REASON)

    Account: Any = _Skips()
    encode_defunct: Any = Account
    encode_typed_data: Any = Account

__all__ = ["Account", "encode_defunct", "encode_typed_data", "needs_eth_account"]
