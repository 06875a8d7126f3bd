"""Mutated inputs for parsers: valid samples with changes that often break parsers."""

from collections.abc import Sequence

from hypothesis import strategies as st

TRICKS: Sequence[bytes] = (
    *(
        b"\x00",
        b"\xff",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"\n",
        b"\\",
        b'"',
        b"'",
        b";",
        b":",
        b",",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b"[[[[[[[[",
        b"NaN",
        b"-0",
        b"1e999",
        b"-1",
        b"9" * 400,
        b"null",
        b"true",
        b"\\ud800",
        b"\\u0000",
    ),
    *(
        b"%00",
        b"%2e%2e%2f",
        b"../",
        b"${7*7}",
        b"{{7*7}}",
        b"<script>",
        b"' OR 1=1--",
        b"A" * 5000,
        "\uff45\u2044\u202e".encode(),
    ),
)


@st.composite
def mutants(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """Draw a sample with up to six changes: bytes are inserted, removed, doubled or overwritten."""
    text = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(0, 6))):
        at, to = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        match draw(st.sampled_from(("put", "cut", "double", "overwrite"))):
            case "put":
                text = text[:at] + draw(st.sampled_from(TRICKS) | st.binary(max_size=8)) + text[at:]
            case "cut":
                text = text[:at] + text[to:]
            case "double":
                text = text[:to] + text[at:to][:2000] + text[to:]
            case _:
                text = text[:at] + draw(st.binary(max_size=4)) + text[at + 1 :]
    return text
