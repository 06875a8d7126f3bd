"""Recognises how pushes are delivered: twice, in another order, with one id only. Nothing is decided on it.

Each process remembers the last pushes that it took; a repetition that another process takes is not seen. The answers are
for the survey (`callkeeper.calls.assumptions`).

Assumed (`push-delivery`): a push arrives once, a CallStart before its CallEnd, with both ids. Anything else is accepted.
"""

from typing import Final

from callkeeper.calls.store.push_intake import CALL_END, CALL_START
from callkeeper.service.endpoints import canonical_id
from callkeeper.service.open_questions import USUAL, Shown
from callkeeper.service.push_event import PushEvent

MOST: Final = 2000
"""How many calls a process remembers, at most."""

_DELIVERY: Final = "push-delivery"

_KINDS: Final = {CALL_START: 1, CALL_END: 2}
"""The types as bits of what was pushed of a call."""

_USUAL: Final = {
    (kind, has_both): Shown(_DELIVERY, USUAL, f"{kind}, {'VoiceId and AlternateVoiceId' if has_both else 'VoiceId'}")
    for kind in (CALL_START, CALL_END)
    for has_both in (True, False)
}


class PushPatterns:
    """Looks at every push that one process takes."""

    def __init__(self) -> None:
        # What was pushed of each call. When the newer half is full, the whole older half is forgotten: keeping all calls in
        # order would make every push cost more.
        self._newer: dict[tuple[str, str], int] = {}
        self._older: dict[tuple[str, str], int] = {}

    def shown(self, event: PushEvent) -> Shown | None:
        """Return what a push shows of its delivery. Samples and unknown types show nothing."""
        kind = _KINDS.get(event.type)
        if kind is None or event.is_test:
            return None
        call = event.institution_key, canonical_id(event.voice_id or event.alternate_voice_id or "")
        taken = self._newer.get(call) or self._older.get(call, 0)
        if len(self._newer) >= MOST // 2:
            self._older, self._newer = self._newer, {}
        self._newer[call] = taken | kind
        if taken & kind:
            return Shown(_DELIVERY, "events-doubled", f"{event.type} twice")
        if taken and kind == _KINDS[CALL_START]:
            return Shown(_DELIVERY, "events-reversed", f"{CALL_END} before {CALL_START}")
        if event.voice_id is None:
            return Shown(_DELIVERY, "events-alternate-id", "AlternateVoiceId only")
        return _USUAL[event.type, bool(event.alternate_voice_id)]
