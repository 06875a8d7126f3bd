"""What a voice id and an institution's key may look like before they enter a header, a path or a Redis key.

The Spec calls both strings and says no more; these are the widest alphabets that are safe in all three.
Quoting in paths is still the sender's duty.
"""

import re
from typing import Final

MAX_VOICE_ID: Final = 256
MAX_INSTITUTION_KEY: Final = 64

_INSTITUTION_KEY = re.compile(rf"[!-.0-~]{{1,{MAX_INSTITUTION_KEY}}}")  # visible ASCII without the slash
_DOT_SEGMENTS = frozenset({".", ".."})


_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_same_id(one: str, other: str) -> bool:
    """Tell whether two voice ids are the same: letter for letter, or as GUIDs, whose case means nothing."""
    return one == other or (
        one.lower() == other.lower() and _GUID.fullmatch(one) is not None and _GUID.fullmatch(other) is not None
    )


def is_voice_id(text: str) -> bool:
    """Tell whether ``text`` may be a voice id or alternate id: 1 to 256 printable characters, blanks inside only.

    Assumed: the Spec shows no alphabet; ``.`` and ``..`` would change a path whatever the quoting, also between slashes:
    routers undo the quoting.
    """
    is_one_line = 0 < len(text) <= MAX_VOICE_ID and text.isprintable() and text == text.strip()
    return is_one_line and _DOT_SEGMENTS.isdisjoint(text.replace("\\", "/").split("/"))


def is_institution_key(text: str) -> bool:
    """Tell whether ``text`` may be an institution's key: 1 to 64 visible ASCII characters, no slash.

    Assumed: the Spec shows no alphabet; the key is sent as a header and as part of a path.
    """
    return _INSTITUTION_KEY.fullmatch(text) is not None and text not in _DOT_SEGMENTS
