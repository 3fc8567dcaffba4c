"""What a child gives up before it reads a module: resources, files, sockets, other processes.

Resource limits hold on every Unix. Linux adds no_new_privs, an address space that other processes cannot read, Landlock
(no file can be opened, Linux 5.13) and seccomp (no call but those in `_CALLS`). A kernel that has not all of them is
used with what it has; `Confinement` says what that is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import sys
from typing import Final

import msgspec

from muniment.guest.limits import PROCESS_CPU_S, PROCESS_FILES, PROCESS_MEMORY_BYTES

# prctl.h, seccomp.h, landlock.h, audit.h and filter.h of Linux.
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_SIGKILL: Final = 9
_SECCOMP_SET_MODE_FILTER: Final = 1
_SECCOMP_FILTER_FLAG_TSYNC: Final = 1
_RET_KILL_PROCESS: Final = 0x8000_0000
_RET_ERRNO_EPERM: Final = 0x0005_0001
_RET_ALLOW: Final = 0x7FFF_0000
_LANDLOCK_CREATE: Final = 444
_LANDLOCK_RESTRICT: Final = 446
_LANDLOCK_VERSION: Final = 1
# The newest rights of files, of TCP and of scopes for each version of Landlock (landlock.h).
_LANDLOCK_FILES: Final = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}
_LANDLOCK_FILES_NEWEST: Final = 0xFFFF
_LANDLOCK_TCP: Final = 0x3
_LANDLOCK_TCP_SINCE: Final = 4
_LANDLOCK_SCOPES: Final = 0x3
_LANDLOCK_SCOPES_SINCE: Final = 6
_LOAD: Final = 0x20
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
# Offsets in struct seccomp_data; both machines are little-endian.
_NUMBER: Final = 0
_MACHINE: Final = 4
_FIRST_ARGUMENT: Final = 16
# Calls of the second interface of x86-64 (x32) have this bit.
_X32: Final = 0x4000_0000


class _Machine(msgspec.Struct, frozen=True):
    """The numbers of a machine: its own, that of seccomp(2), of tgkill(2), and of the calls that are let through."""

    audit: int
    seccomp: int
    tgkill: int
    calls: tuple[int, ...]


# What an interpreter and an engine without files need: read, write, close; memory; threads that wait; signals; time;
# random bytes; the end. In the order of: read write close mmap mprotect munmap brk mremap madvise futex sched_yield
# rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack getpid gettid clock_gettime clock_nanosleep nanosleep
# gettimeofday restart_syscall getrandom membarrier rseq exit exit_group.
_MACHINES: Final = {
    "x86_64": _Machine(
        0xC000_003E, 317, 234,
        (0, 1, 3, 9, 10, 11, 12, 25, 28, 202, 24, 13, 14, 15, 131, 39, 186, 228, 230, 35, 96, 219, 318, 324, 334, 60,
         231),
    ),
    "aarch64": _Machine(
        0xC000_00B7, 277, 131,
        (63, 64, 57, 222, 226, 215, 214, 216, 233, 98, 124, 134, 135, 139, 132, 172, 178, 113, 115, 101, 169, 128, 278,
         283, 293, 93, 94),
    ),
}  # fmt: skip


class Confinement(msgspec.Struct, frozen=True):
    """How a child is confined: `landlock` is the version of its interface, 0 without it; `memory` is the limit's."""

    memory: bool = False
    no_new_privs: bool = False
    landlock: int = 0
    seccomp: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """What the system lacks, in words for a log line or the doctor."""
        words = {
            "a limit of memory": self.memory, "no_new_privs": self.no_new_privs,
            "Landlock": self.landlock > 0, "seccomp": self.seccomp,
        }  # fmt: skip
        return tuple(word for word, there in words.items() if not there)


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (Linux)."""
    if libc := _libc():
        libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def restrict(
    *, cpu_s: int = PROCESS_CPU_S, memory_bytes: int = PROCESS_MEMORY_BYTES, files: int = PROCESS_FILES
) -> Confinement:
    """Give up resources, privileges and files for ever. Call it before there is a second thread, then `filter_calls`.

    The soft limit of CPU time ends the process by SIGXCPU, the hard one a second later by SIGKILL.
    """
    limits = {
        resource.RLIMIT_CPU: (cpu_s, cpu_s + 1), resource.RLIMIT_NOFILE: (files, files),
        resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_FSIZE: (0, 0),
    }  # fmt: skip
    for limit, (soft, hard) in limits.items():
        _lower(limit, soft, hard)
    memory = False
    with contextlib.suppress(OSError, ValueError):  # macOS refuses this one
        _lower(resource.RLIMIT_AS, memory_bytes, memory_bytes)
        memory = True
    libc = _libc()
    if libc is None:
        return Confinement(memory=memory)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    no_new_privs = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    return Confinement(memory=memory, no_new_privs=no_new_privs, landlock=_landlock(libc))


def _lower(limit: int, soft: int, hard: int) -> None:
    """Set a limit, unless a lower one is set already."""
    given = resource.getrlimit(limit)[1]
    most = hard if given == resource.RLIM_INFINITY else min(given, hard)
    resource.setrlimit(limit, (min(soft, most), most))


def _landlock(libc: ctypes.CDLL) -> int:
    """Forbid files, TCP, and sockets and signals of others, as far as this kernel can; its version of Landlock."""
    version = int(libc.syscall(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION))
    if version < 1:
        return 0
    members = [_LANDLOCK_FILES.get(version, _LANDLOCK_FILES_NEWEST)]
    if version >= _LANDLOCK_TCP_SINCE:
        members.append(_LANDLOCK_TCP)
    if version >= _LANDLOCK_SCOPES_SINCE:
        members.append(_LANDLOCK_SCOPES)
    attributes = struct.pack(f"={len(members)}Q", *members)
    rules = int(libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0))
    if rules < 0:
        return 0
    try:
        return version if libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0 else 0
    finally:
        os.close(rules)


class _Program(ctypes.Structure):
    """Struct sock_fprog of filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls() -> bool:
    """Forbid all threads each system call that running a module does not need; whether the kernel did.

    A forbidden call fails with EPERM.
    """
    libc, machine = _libc(), _MACHINES.get(platform.machine())
    if libc is None or machine is None:
        return False
    instructions = _filter(machine, os.getpid())
    program = _Program(len(instructions) // 8, instructions)
    done = libc.syscall(machine.seccomp, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(program))
    return done == 0


def _filter(machine: _Machine, pid: int) -> bytes:
    """The filter as instructions of the classic BPF: (code, steps if true, steps if false, value)."""
    count = len(machine.calls)
    # After the list come five instructions: three for tgkill(2), which abort(3) needs and may only hit this process,
    # then the two ends.
    listed = [(_IF_EQUAL, count - position + 3, 0, call) for position, call in enumerate(machine.calls)]
    program = [
        (_LOAD, 0, 0, _MACHINE),
        (_IF_EQUAL, 1, 0, machine.audit),
        (_RETURN, 0, 0, _RET_KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, count + 3, 0, _X32),
        *listed,
        (_IF_EQUAL, 0, 2, machine.tgkill),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 1, 0, pid),
        (_RETURN, 0, 0, _RET_ERRNO_EPERM),
        (_RETURN, 0, 0, _RET_ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *each) for each in program)
