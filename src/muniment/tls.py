"""The certificates that every TLS connection of this software trusts."""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Final

# As OpenSSL has them (SSL_CTX_set_default_verify_paths(3)): a file of certificates, and directories with one in each
# file, named by `openssl rehash`. An empty variable counts as not set.
_FILE: Final = "SSL_CERT_FILE"
_DIRECTORIES: Final = "SSL_CERT_DIR"


def tls_context() -> ssl.SSLContext:
    """One context for all clients of a process, since reading the machine's certificates takes some 20 ms.

    It trusts the certificates that `SSL_CERT_FILE` and `SSL_CERT_DIR` name; without both, those of the operating
    system. Raises `ValueError` for a variable that names what cannot be read.
    """
    return _context(os.environ.get(_FILE, ""), os.environ.get(_DIRECTORIES, ""))


def check_trust() -> None:
    """Raise as `tls_context` does, without reading the certificates of the operating system."""
    if os.environ.get(_FILE) or os.environ.get(_DIRECTORIES):
        tls_context()


@cache
def _context(file: str, directories: str) -> ssl.SSLContext:
    if not file and not directories:
        import httpcore2  # noqa: PLC0415 - a service that asks no other server never loads it

        return httpcore2.default_ssl_context()
    named = [*filter(None, directories.split(os.pathsep))]
    if named and not any(os.access(each, os.R_OK | os.X_OK) for each in named):  # OpenSSL skips one that is missing
        raise ValueError(f"{_DIRECTORIES} names {directories}, which cannot be read")
    try:
        return ssl.create_default_context(cafile=file or None, capath=directories or None)
    except OSError as error:  # an SSLError too
        raise ValueError(f"{_FILE} names {file}, which cannot be read as certificates: {error.strerror}") from error
