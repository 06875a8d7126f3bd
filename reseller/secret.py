"""A sensitive text: masked wherever it is shown, refused wherever it would be written out.

Social security numbers, licences, birth dates, support passwords, tokens and the stored secrets of cores and
VPNs travel as `Secret`. Showing one (``repr``, ``str``, an f-string, a log line) shows a mask; encoding one
(msgspec, json, pickle) fails. Whoever really needs the text says so with `Secret.reveal`.
"""

import hmac
from typing import Any, NoReturn, Self

MASK = "***"


class Secret:
    """Hold a text that must be neither shown nor encoded by accident. Immutable."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself; the caller answers for where it goes."""
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
        """Compare in a time that does not depend on the first difference."""
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
        """Refuse pickling and everything built on it.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a Secret is not encoded")


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
