"""Upload forms byte by byte, for what a client library would not send."""

from __future__ import annotations

from builders import Bundle

BOUNDARY = "----form-7MA4YWxkTrZu0gW"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
END = f"--{BOUNDARY}--".encode()


def headed(head: bytes, data: bytes) -> bytes:
    """A part with the header lines `head`."""
    return f"--{BOUNDARY}\r\n".encode() + head + b"\r\n\r\n" + data + b"\r\n"


def part(filename: str, data: bytes, *, name: str = "file", more: str = "") -> bytes:
    """A file as browsers send it; `more` are further header lines with line ends."""
    head = f'{more}Content-Disposition: form-data; name="{name}"; filename="{filename}"'
    return headed(head.encode(), data)


def bundle_form(bundle: Bundle) -> bytes:
    """A bundle as Mimic's deploy command sends it: the manifest first, both parts with their types."""
    disposition = 'Content-Disposition: form-data; name="file"; filename="{}"\r\nContent-Type: {}'
    return (
        headed(disposition.format("manifest.json", "application/json").encode(), bundle.manifest)
        + headed(disposition.format("function.wasm", "application/wasm").encode(), bundle.wasm)
        + END
        + b"\r\n"
    )
