"""The check of the sandbox: whether functions can be run here, and how the system confines them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.guest.children import SandboxMissing, missing_libraries
from muniment.guest.sandbox import Sandbox
from muniment.operate.doctor.findings import Finding, fail, ok, warn

if TYPE_CHECKING:
    from muniment.guest.confinement import Confinement
    from muniment.operate.doctor.findings import Examined


async def check_sandbox(_: Examined) -> Finding:
    """Start a process as a run has it, and look how it is confined."""
    if missing := missing_libraries():
        return ok(f"no functions run here: not installed: {', '.join(missing)} (extra `relayer`)")
    try:
        async with Sandbox.open() as sandbox:
            return judge_confinement(sandbox.confinement)
    except SandboxMissing as error:
        return fail(str(error), "repair it, or uninstall eth-abi if no functions are to run here")


def judge_confinement(confinement: Confinement) -> Finding:
    """A finding about what the system gives."""
    if missing := confinement.missing:
        return warn(
            f"a function runs without {', '.join(missing)}",
            "use Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK and CONFIG_SECCOMP_FILTER, on x86-64 or ARM64; in a "
            "container, allow the Landlock system calls in its seccomp profile",
        )
    return ok(f"functions run confined: seccomp, Landlock {confinement.landlock}")
