"""Records are decoded in threads, and msgspec must not read the annotations of a struct in two threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from each_row import each_row

# The first thread stops while msgspec reads the annotations of a struct within a struct. The second one decodes the
# same kind then: it has to wait, since what msgspec knows of the outer struct is incomplete.
_PROGRAM = """
import sys
import threading
{imports}

begun = 0

def decode():
    {decode}

def profile(frame, event, _):
    global begun
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        begun += 1
        if begun == 2:
            second = threading.Thread(target=decode)
            second.start()
            second.join(0.5)

decode_first = threading.Thread(target=lambda: (sys.setprofile(profile), decode()))
decode_first.start()
decode_first.join()
print(begun)
"""
_RECORD = {
    "imports": "from muniment.protocol.forms import decode_record\nfrom muniment.protocol.runs.types import NewRun",
    "decode": "decode_record(NewRun.example, NewRun)",
}
_SHAPE = {
    "imports": "from muniment.relayer.runner.operations import is_cross_chain",
    "decode": """is_cross_chain({
        "sourceChain": 1, "destinationChain": 1, "tokensIn": [{"token": "0x" + "11" * 20, "amount": 1}],
        "tokensOut": [{"token": "0x" + "11" * 20, "minAmount": 1, "recipient": "0x" + "11" * 20}],
    })""",
}


@each_row("kind", [_RECORD, _SHAPE], ids=["a-record", "an-operation"])
@pytest.mark.programs
def test_two_threads_that_decode_a_kind_first_read_its_annotations_one_after_the_other(kind: dict[str, str]) -> None:
    program = [sys.executable, "-c", _PROGRAM.format(**kind)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 1
