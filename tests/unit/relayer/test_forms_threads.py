"""Forms are made in threads, and msgspec must not read the annotations of a struct in two threads at once."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from msgspec import Struct, ValidationError, convert
from muniment.protocol.wire import decode_text
from muniment.relayer import forms, operations
called = []
rooms = {forms.__name__, operations.__name__}
found = [each for room in (forms, operations) for each in vars(room).values() if isinstance(each, type(Struct))]
# `_Sent` is only the parent of others.
kinds = [each for each in found if each.__module__ in rooms and each.__name__ != "_Sent"]
kinds += [forms.NewIntent, forms.NewOperationsIntent]
sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name))
for kind in kinds:
    try:
        convert({}, kind, dec_hook=decode_text)
    except ValidationError:
        pass
sys.setprofile(None)
print(len(kinds) > 10, "get_class_annotations" in called)
"""


def test_every_struct_of_forms_is_read_when_the_module_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "False"]
