"""Reading a multipart form: how it arrives makes no difference, and nothing but its own refusals comes out."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from forms import BOUNDARY, END, FORM, headed, part
from muniment.protocol.errors import BodyTooLarge, InvalidUpload, Refusal, UnsupportedMediaType
from muniment.service.http.request import ClientGone, Limits, Request
from muniment.service.http.uploads import FRAMING_BYTES_MAX, HEADER_BYTES_MAX, FileDue, receive_files

MANIFEST, WASM = b'{"a":\r\n1}', b"\0asm\r\n--\r\n----form-7MA\r\r\n"
SIZE_MAX = 2_000


@dataclass
class Sent:
    """A body on its way, in chunks; counts how many were asked for."""

    chunks: list[bytes]
    content_type: str | None = FORM
    headers: dict[str, str] = field(default_factory=dict[str, str])
    asked: int = 0

    def request(self) -> Request:
        headers = dict(self.headers)
        if self.content_type is not None:
            headers["content-type"] = self.content_type
        fields = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        request = Request("POST", "/", b"", fields, self, peer="", named=dict(fields), head_bytes_max=0)
        request.limits = Limits(1024, 5)
        return request

    def take(self) -> tuple[bytes, bool]:
        self.asked += 1
        if self.asked > len(self.chunks):
            return b"", False
        return self.chunks[self.asked - 1], True

    async def wait(self) -> None:
        raise AssertionError("it has all arrived")


async def received(sent: Sent, *, bytes_max: int = SIZE_MAX) -> dict[str, bytes]:
    sinks = {"manifest.json": io.BytesIO(), "function.wasm": io.BytesIO()}
    await receive_files(sent.request(), "file", {name: FileDue(bytes_max, sink) for name, sink in sinks.items()})
    return {name: sink.getvalue() for name, sink in sinks.items()}


async def outcome(sent: Sent) -> dict[str, bytes] | type[Refusal]:
    try:
        return await received(sent)
    except (InvalidUpload, BodyTooLarge, UnsupportedMediaType) as refusal:
        return type(refusal)


def manifest(head: bytes) -> bytes:
    """The manifest with another head."""
    return headed(head, MANIFEST)


def changed(**changes: str) -> bytes:
    """The manifest with another field name, or with more header lines."""
    return part("manifest.json", MANIFEST, **changes)


MODULE = part("function.wasm", WASM)
GIVEN = part("manifest.json", MANIFEST)
LINE = f"--{BOUNDARY}\r\n".encode()
GOOD = GIVEN + MODULE + END
FILES = {"manifest.json": MANIFEST, "function.wasm": WASM}

DISPOSITION = b"Content-Disposition: form-data; "
PLAIN = DISPOSITION + b'name="file"; filename="manifest.json"'
TAKEN = {
    "as most clients send it": GOOD + b"\r\n",
    "without a last line break": GOOD,
    "the other file first": MODULE + GIVEN + END,
    "with the types of the parts": changed(more="Content-Type: application/json\r\n") + MODULE + END,
    "with lengths of the parts": changed(more=f"Content-Length: {len(MANIFEST)}\r\n") + MODULE + END,
    "with an encoding that encodes nothing": changed(more="Content-Transfer-Encoding: binary\r\n") + MODULE + END,
    "without quotes": manifest(b"Content-Disposition: form-data; name=file; filename=manifest.json") + MODULE + END,
    "in other letter cases": manifest(b'content-disposition: Form-Data;NAME="file";FileName="manifest.json"')
    + MODULE + END,
    "as .NET sends it": manifest(
        b"Content-Disposition: form-data; name=file; filename=manifest.json; filename*=utf-8''manifest.json"
    ) + MODULE + END,
    "with the same name in UTF-8 before": manifest(
        DISPOSITION + b"filename*=UTF-8'en'manifest%2Ejson; name=file; filename=\"manifest.json\""
    ) + MODULE + END,
    "with something after it (RFC 2046 section 5.1.1)": GOOD + b"\r\nan epilogue\r\n" + GIVEN,
    "with something before it": b"a preamble\r\n\r\n--\r\n----form\r\n" + GOOD,
    "with a line before it that begins as a boundary": f"--{BOUNDARY}x\r\n".encode() + GOOD,
    "with an empty line before it": b"\r\n" + GOOD,
    "with white space after each boundary": GOOD.replace(LINE, LINE[:-2] + b" \t" * 128 + b"\r\n") + b" \r\n",
    "with a semicolon at the end": manifest(PLAIN + b" ; ") + MODULE + END,
    "with empty parameters": manifest(PLAIN.replace(b"; ", b" ;\t;")) + MODULE + END,
    "with unknown parameters": manifest(PLAIN + b'; size=9; creation-date="1 Jan 2026, 10:00"') + MODULE + END,
    "with a tab for a space": manifest(PLAIN.replace(b": ", b":\t")) + MODULE + END,
}  # fmt: skip


@each_row("form", TAKEN)
@each_row("size", [1, 7, 64, 10_000])
async def test_takes_a_form_in_chunks_of_any_size(form: str, size: int) -> None:
    body = TAKEN[form]
    assert await received(Sent([body[at : at + size] for at in range(0, len(body), size)])) == FILES


REFUSED = {
    "nothing": b"",
    "no part": END,
    "one file": GIVEN + END,
    "three files": GIVEN + MODULE + part("other.txt", WASM) + END,
    "the manifest twice": GIVEN + GIVEN + END,
    "the manifest twice beside the module": GIVEN + MODULE + GIVEN + END,
    "another field name": changed(name="files") + MODULE + END,
    "no field name": manifest(b'Content-Disposition: form-data; filename="manifest.json"') + MODULE + END,
    "an empty field name": changed(name="") + MODULE + END,
    "two field names": manifest(DISPOSITION + b'name="x"; name="file"; filename="manifest.json"') + MODULE + END,
    "half a parameter": manifest(b'Content-Disposition: form-data; name="file"; filename="manifest.json"; more')
    + MODULE
    + END,
    "no file name": manifest(b'Content-Disposition: form-data; name="file"') + MODULE + END,
    "an empty file name": part("", WASM) + MODULE + END,
    "another letter case": part("Manifest.json", WASM) + MODULE + END,
    "a path upwards": GIVEN + part("../function.wasm", WASM) + END,
    "a path of Windows": GIVEN + part("C:\\fakepath\\function.wasm", WASM) + END,
    "an escaped path of Windows": GIVEN + part("C:\\\\function.wasm", WASM) + END,
    "a NUL in the name": GIVEN + part("function.wasm\0.png", WASM) + END,
    "a NUL after the name": GIVEN + part("function.wasm\0", WASM) + END,
    "a space after the name": GIVEN + part("function.wasm ", WASM) + END,
    "a percent-encoded name": GIVEN + part("function%2ewasm", WASM) + END,
    "a look-alike": GIVEN + part("function\u2024wasm", WASM) + END,
    "filename*": manifest(PLAIN + b"; filename*=UTF-8''x.png") + MODULE + END,
    "filename* before": manifest(DISPOSITION + b"filename*=UTF-8''x; name=file; filename=manifest.json") + MODULE + END,
    "filename* alone": manifest(DISPOSITION + b"name=\"file\"; filename*=UTF-8''manifest.json") + MODULE + END,
    "filename* of nothing": manifest(PLAIN + b"; filename*=UTF-8''") + MODULE + END,
    "filename* without a charset": manifest(PLAIN + b"; filename*=manifest.json") + MODULE + END,
    "filename* in another charset": manifest(PLAIN + b"; filename*=iso-8859-1''manifest.json") + MODULE + END,
    "filename* that is not UTF-8": manifest(PLAIN + b"; filename*=UTF-8''%ff") + MODULE + END,
    "filename* with half an escape": manifest(PLAIN + b"; filename*=UTF-8''manifest.json%") + MODULE + END,
    "filename* twice": manifest(PLAIN + 2 * b"; filename*=UTF-8''manifest.json") + MODULE + END,
    "filename* in another letter case": manifest(PLAIN + b"; filename*=UTF-8''Manifest.json") + MODULE + END,
    "a file name in pieces": manifest(DISPOSITION + b'name="file"; filename*0="manifest"; filename*1=".json"')
    + MODULE + END,
    "two file names": manifest(PLAIN + b'; filename="function.wasm"') + MODULE + END,
    "two equal file names": manifest(PLAIN + b'; filename="manifest.json"') + MODULE + END,
    "two dispositions": manifest(PLAIN + b"\r\n" + PLAIN) + MODULE + END,
    "no disposition": manifest(b"Content-Type: application/json") + MODULE + END,
    "an attachment": manifest(b'Content-Disposition: attachment; name="file"; filename="manifest.json"') + MODULE + END,
    "base64": changed(more="Content-Transfer-Encoding: base64\r\n") + MODULE + END,
    "never closed": GIVEN + MODULE,
    "closed by half": GIVEN + MODULE + END[:-1],
    "cut in the middle": GOOD[:-100],
    "another boundary": GOOD.replace(BOUNDARY.encode(), b"other"),
    "a boundary that begins no line": b"a preamble" + GOOD.replace(b"\r\n--", b"--"),
    "a preamble of bare line feeds": b"a preamble\n" + GOOD.replace(b"\r\n", b"\n"),
    "name*": manifest(PLAIN + b"; name*=UTF-8''file") + MODULE + END,
    "a file name with a further piece": manifest(PLAIN + b"; filename*0=x") + MODULE + END,
    "an unknown parameter twice": manifest(PLAIN + b"; size=1; size=2") + MODULE + END,
    "too much white space after a boundary": GOOD.replace(LINE, LINE[:-2] + b" " * 257 + b"\r\n"),
    "something after white space after a boundary": GOOD.replace(LINE, LINE[:-2] + b" x\r\n"),
    "bare line feeds": GOOD.replace(b"\r\n", b"\n"),
    "a bare line feed in a header": manifest(PLAIN.replace(b"; filename", b"\nX: y; filename")) + MODULE + END,
    "a bare line feed before a header": manifest(b"X-A: b\n" + PLAIN) + MODULE + END,
    "a line feed before a header": manifest(b"\n" + PLAIN) + MODULE + END,
    "an empty head": manifest(b"") + MODULE + END,
    "a folded header": manifest(PLAIN.replace(b"; filename", b";\r\n filename")) + MODULE + END,
    "a header that is not UTF-8": manifest(b"X-A: \xff\r\n" + PLAIN) + MODULE + END,
    "a header without a name": manifest(b": x\r\n" + PLAIN) + MODULE + END,
    "a header of 5,000 bytes": changed(more="X-A: " + "x" * 5_000 + "\r\n") + MODULE + END,
    "a thousand headers": changed(more="X-A: b\r\n" * 1_000) + MODULE + END,
    "a hundred parts": GIVEN * 100 + END,
    "JSON": b'{"file":"manifest.json"}',
}  # fmt: skip


@each_row("form", REFUSED)
@each_row("size", [1, 7, 64, 10_000])
async def test_refuses_another_form_in_chunks_of_any_size(form: str, size: int) -> None:
    body = REFUSED[form]
    with pytest.raises(InvalidUpload):
        await received(Sent([body[at : at + size] for at in range(0, len(body), size)]))


@each_row("size", [1, 7, 10_000])
async def test_takes_the_longest_header_and_refuses_one_byte_more(size: int) -> None:
    room = HEADER_BYTES_MAX - len(b"X-A: ")
    for length in (room, room + 1):
        body = manifest(PLAIN + b"\r\nX-A: " + b"x" * length) + MODULE + END
        sent = Sent([body[at : at + size] for at in range(0, len(body), size)])
        assert await outcome(sent) == (FILES if length == room else InvalidUpload)


@each_row(
    ("content_type", "refusal"),
    [
        (None, UnsupportedMediaType), ("", UnsupportedMediaType), ("application/json", UnsupportedMediaType),
        ("multipart/mixed; boundary=x", UnsupportedMediaType), ("application/octet-stream", UnsupportedMediaType),
        ("multipart/form-data", InvalidUpload), ("multipart/form-data; boundary=", InvalidUpload),
        ('multipart/form-data; boundary=""', InvalidUpload), (f"{FORM}; boundary=x", InvalidUpload),
        (f"{FORM}; boundary={BOUNDARY}", InvalidUpload), (f"{FORM}; Boundary=x", InvalidUpload),
        (f"{FORM}; boundary*=utf-8''x", InvalidUpload), (f"{FORM}; boundary*0=x", InvalidUpload),
        ("multipart/form-data; boundary=" + "x" * 71, InvalidUpload), (f"{FORM}é", InvalidUpload),
        ("multipart/form-data; boundary=a b", InvalidUpload), ('multipart/form-data; boundary="a" b', InvalidUpload),
        ('multipart/form-data; boundary="a', InvalidUpload), ('multipart/form-data; boundary="a "', InvalidUpload),
        (f'multipart/form-data; x="{FORM}"', InvalidUpload), (f"{FORM}; charset=iso-8859-1", UnsupportedMediaType),
        (f"multipart/form-data-x; boundary={BOUNDARY}", UnsupportedMediaType), (f";{FORM}", UnsupportedMediaType),
    ],
)  # fmt: skip
async def test_needs_a_multipart_type_with_one_boundary(content_type: str | None, refusal: type[Refusal]) -> None:
    sent = Sent([GOOD], content_type)
    with pytest.raises(refusal):
        await received(sent)
    assert sent.asked == 0


@each_row("boundary", ["x", "x" * 70, "a'b+c_d.e-f", '"a b:c=d?e/f,g(h)"', "===a/b:c==="])
async def test_takes_every_boundary_of_rfc_2046(boundary: str) -> None:
    body = GOOD.replace(BOUNDARY.encode(), boundary.strip('"').encode())
    module = WASM.replace(BOUNDARY.encode(), boundary.strip('"').encode())
    sent = Sent([body], f"multipart/form-data; boundary={boundary}")
    assert await received(sent) == {**FILES, "function.wasm": module}


@each_row(
    "content_type",
    [
        f"{FORM}; charset=utf-8", f"{FORM};charset=UTF8", f"{FORM};", f"{FORM} ; ; ", f"{FORM}; x",
        f'{FORM}; x="; boundary=y"',
        f'multipart/form-data; charset="UTF-8"; BOUNDARY="{BOUNDARY}"', f"Multipart/Form-Data;;boundary={BOUNDARY};q=1",
        f'multipart/form-data; boundary="{BOUNDARY[:5]}\\{BOUNDARY[5:]}"',
    ],
)  # fmt: skip
async def test_takes_a_multipart_type_with_other_parameters(content_type: str) -> None:
    assert await received(Sent([GOOD], content_type)) == FILES


async def test_says_that_no_line_is_the_boundary() -> None:
    with pytest.raises(InvalidUpload, match="lines end with CRLF"):
        await received(Sent([GOOD.replace(b"\r\n", b"\n")]))


async def test_refuses_a_content_coding() -> None:
    with pytest.raises(UnsupportedMediaType):
        await received(Sent([GOOD], headers={"content-encoding": "gzip"}))


async def test_takes_a_file_of_the_largest_size_and_refuses_one_byte_more() -> None:
    assert await received(Sent([GOOD]), bytes_max=max(len(MANIFEST), len(WASM))) == FILES
    with pytest.raises(BodyTooLarge, match=r"function\.wasm has more than"):
        await received(Sent([GOOD]), bytes_max=len(WASM) - 1)


async def test_an_announced_length_that_is_too_large_is_refused_before_anything_is_read() -> None:
    sent = Sent([GOOD], headers={"content-length": str(2 * SIZE_MAX + FRAMING_BYTES_MAX + 1)})
    with pytest.raises(BodyTooLarge):
        await received(sent)
    assert sent.asked == 0


async def test_a_file_that_is_too_large_is_refused_without_reading_the_rest() -> None:
    sent = Sent([GIVEN[:-2], *[b"x" * 100] * 1_000])
    with pytest.raises(BodyTooLarge):
        await received(sent)
    assert sent.asked <= SIZE_MAX // 100 + 2


@each_row("endless", [GIVEN * 20, b"X-A: b\r\n" * 20, b"x" * 200], ids=["parts", "headers", "one header"])
async def test_endless_framing_is_refused_without_reading_the_rest(endless: bytes) -> None:
    sent = Sent([f"--{BOUNDARY}\r\n".encode(), *[endless] * 10_000])
    with pytest.raises(InvalidUpload):
        await received(sent)
    assert sent.asked <= HEADER_BYTES_MAX // len(endless) + 3


async def test_an_endless_preamble_is_too_large() -> None:
    with pytest.raises(BodyTooLarge):
        await received(Sent([*[b"x" * 1_000] * 1_000, GOOD]))


async def test_an_endless_epilogue_is_too_large() -> None:
    with pytest.raises(BodyTooLarge):
        await received(Sent([GOOD, *[b"x" * 1_000] * 1_000]))


async def test_a_client_that_goes_away_is_no_refusal() -> None:
    sent = Sent([])

    def take() -> tuple[bytes, bool]:
        raise ClientGone

    sent.take = take
    with pytest.raises(ClientGone):
        await received(sent)


def split(body: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(body) + 1) for cut in cuts})
    return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]


@st.composite
def altered(draw: st.DrawFn) -> bytes:
    """A form with some of its bytes replaced, inserted or removed."""
    body = draw(st.sampled_from([GOOD, GOOD + b"\r\n", *REFUSED.values()]))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        new = draw(
            st.sampled_from([b"\r\n", b"\n", b"\r", b"--", b'"', b";", b"\0", b"\\", END]) | st.binary(max_size=4)
        )
        body = body[:at] + new + body[at + draw(st.integers(0, 4)) :]
    return body


@given(altered(), st.lists(st.integers(0, 2**16), max_size=8))
async def test_how_a_form_is_split_makes_no_difference(body: bytes, cuts: list[int]) -> None:
    whole = await outcome(Sent([body]))
    assert await outcome(Sent(split(body, cuts))) == whole
    assert await outcome(Sent(split(body, [*range(len(body))]))) == whole


@given(
    altered() | st.binary(),
    st.sampled_from([FORM, "multipart/form-data; boundary=x"]) | st.text(max_size=80).filter(str.isascii),
)
async def test_anything_is_received_or_refused(body: bytes, content_type: str) -> None:
    await outcome(Sent([body], content_type))


async def test_a_piece_of_a_file_is_forgotten_before_the_next_one_is_asked_for() -> None:
    form = part("function.wasm", bytes(900)) + GIVEN + END
    pieces, users = [form[at : at + 200] for at in range(0, len(form), 200)], list[int]()

    class Watched(Sent):
        def take(self) -> tuple[bytes, bool]:
            if self.asked:
                users.append(sys.getrefcount(pieces[self.asked - 1]))
            return super().take()

    alone = sys.getrefcount(pieces[0])
    assert await received(Watched(pieces)) == {"manifest.json": MANIFEST, "function.wasm": bytes(900)}
    assert users[: len(pieces)] == [alone] * len(pieces)
