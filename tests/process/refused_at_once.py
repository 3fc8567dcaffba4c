"""`muniment`, except that a refused delivery is tried again at once, and each delivery is stored before the next.

So twenty events are refused five times each in seconds, and not in two and a half hours.
"""

from __future__ import annotations

from muniment.__main__ import main
from muniment.service.resources.webhooks import deliverer, hook_state

_PACE = [
    (hook_state, "_REFUSAL_WAITS_MS", (0, 0, 0, 0)),
    (deliverer, "_STORED_MS", 0),
    (deliverer, "_LOOK_SECONDS", 0.002),
    (deliverer, "_ASKED_SECONDS", 0.1),
]

if __name__ == "__main__":
    for module, name, value in _PACE:
        assert hasattr(module, name)
        setattr(module, name, value)
    main()
