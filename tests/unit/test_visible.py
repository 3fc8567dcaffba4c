"""Characters that show nothing, or move their neighbours, are written out wherever the text of a stranger is shown."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import pytest

from each_row import each_row
from muniment.cli import output
from muniment.protocol.errors import InvalidParameter
from muniment.protocol.visible import visible
from muniment.service.http.html.markup import seen, strange
from muniment.service.http.problems import problem

# Hangul fillers, the Khmer inherent vowels, a grapheme joiner, the empty Braille pattern, a selector, a tag, a reserved
# code point, spaces that are not U+0020.
HIDDEN = "\u3164\u115f\u1160\uffa0\u17b4\u17b5\u034f\u2800\ufe0f\U000e0041\u2065\u00ad\u200b\u202e\u00a0\u3000\x1b"


def read(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", markup))


@each_row("hidden", [*HIDDEN])
def test_what_shows_nothing_is_written_out_in_every_place(hidden: str) -> None:
    name, escaped = f"U+{ord(hidden):04X}", hidden.encode("utf-16-be").hex()
    escaped = "".join(f"\\u{escaped[at : at + 4]}" for at in range(0, len(escaped), 4))
    text = f"a{hidden}b"
    assert read(strange(text)) == seen(text) == f"a{name}b"
    assert visible(text) == f"a{escaped}b"
    document = msgspec.json.decode(problem(InvalidParameter(text), "1", "").body)
    assert document["detail"] == document["message"] == document["content"]["message"] == f"a{escaped}b"
    assert read(strange(hidden)) == seen(hidden) == name
    assert visible(hidden) == escaped


@each_row(("blank", "named"), [(" ", "U+0020"), ("\n", "U+000A"), (" \t ", "U+0020U+0009U+0020")])
def test_a_text_of_spaces_alone_is_not_empty(blank: str, named: str) -> None:
    assert read(strange(blank)) == seen(blank) == named
    assert visible(blank, keeps="\n").strip()


def test_a_command_prints_nothing_unseen(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_text(f"first {HIDDEN}\nsecond")
    output.print_note(HIDDEN)
    output.show_one(None, {"description": HIDDEN}, as_json=False)
    said = "".join(capsys.readouterr())
    assert said.isprintable() or not set(said) & set(HIDDEN)


@each_row("text", ["größer ≥ 1 ✓ 😀 中", "a\nb", "नमस्ते", "", "e\u0301"])
def test_other_texts_stay(text: str) -> None:
    assert visible(text, keeps="\n") == seen(text) == read(strange(text)) == text


# As V8 has the property in `\p{DI}` (Unicode 17.0).
IGNORABLE = (
    "ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0 fff0-fff8 "
    "1bca0-1bca3 1d173-1d17a e0000-e0fff"
)


def test_every_default_ignorable_code_point_is_written_out() -> None:
    ends = [[int(end, 16) for end in each.split("-")] for each in IGNORABLE.split()]
    every = [chr(code) for first, *last in ends for code in range(first, (last or [first])[0] + 1)]
    assert len(every) == 4174  # as DerivedCoreProperties.txt says
    assert [each for each in every if visible(each) == each] == []
