"""A sensitive text that is masked when shown and cannot be encoded.

Social security numbers, licences, birth dates, support passwords, tokens, and the stored secrets of cores and VPNs are
held as `Secret`. Showing one (``repr``, ``str``, an f-string, a log line) gives a mask. Encoding one (msgspec, json,
pickle) fails. Code that needs the text calls `Secret.reveal`.

The service's own texts may repeat what was asked for, and a name cannot be told from another word by its form. So
`plain_words` keeps only words from a list.
"""

import hmac
import re
from typing import Any, NoReturn, Self

MASK = "***"


class Secret:
    """Holds a text that must not be shown or encoded by accident. Immutable."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself. The caller is responsible for where it goes."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        """Compare in constant time."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_octets(self._text), _octets(other._text))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse pickling and everything based on it.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a Secret is not encoded")


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


WORDS = frozenset(
    """
    a about access accesstoken account action activity after again all allowed already alternate an and another any are
    as assign assigned at authenticated authentication authorized bad be because been before being below between body
    bound busy but by call caller calls can cannot carrier central change check checks child client closed code config
    configured conflict connection contains content could credentials date day days deadline denied details device did
    digits disabled does down due during duplicate each edge email empty end ended endpoint enroll enrolled enrollment
    error event exceeded exist existing exists expected expired external failed failure feature field file first for
    forbidden format found from full gateway given greater guid had has have header hour hours id identifier if in
    inactive incorrect institution institutionkey institutions internal invalid is it item json key last later length
    less limit limited list live locked login long longer low maintenance maximum may member message method minimum
    minute minutes missing more must name network new no none not number of off offline on one only open operation or
    other out over overloaded owned page pagesize parameter parse password path pending permission person personid phone
    phonenumber please policy present processed processing profile property provided provider query queue rate read
    reason received record rejected reject request requested requestedby requests require required resource response
    result retry right same second seconds see send sent server service session should size sso ssotoken start started
    state status still stored string success supported system target temporarily than that the their there this time
    timeout timed to token too try type unauthorized unavailable under unexpected unknown unsupported until update
    upstream url use used user username valid validation validationtype value values vendor verification verified
    version voice voiceid voiceprint wait was were when which while will with within without write wrong yet you your
    zero
    """.split()  # noqa: SIM905  (a table of words is read as a text)
)
"""Words that occur in error messages, in lower case. None is a name."""

MOST = 200
_HIDDEN = "…"
_PIECE = re.compile(r"[^\s]+")
_BARE = re.compile(r"^([(\[]*)([A-Za-z]+)([)\].,:;!?]*)$")
_TAIL = re.compile(r"[.,:;!?]*$")


def plain_words(text: str) -> str:
    """Return a text as one line of at most 200 characters, with an ellipsis for words that are not in the list."""
    pieces: list[str] = []
    for piece in _PIECE.findall(text[: 10 * MOST]):
        bare = _BARE.match(piece)
        plain = piece if bare and bare.group(2).lower() in WORDS else _HIDDEN + _tail(piece)
        if plain.startswith(_HIDDEN) and pieces and pieces[-1].startswith(_HIDDEN):
            pieces.pop()
        pieces.append(plain)
    line = " ".join(pieces)
    return line if len(line) <= MOST else line[: MOST - 1].rstrip() + _HIDDEN


def _tail(piece: str) -> str:
    found = _TAIL.search(piece)
    return found.group(0)[:1] if found else ""
