"""Recognises how pushes are delivered: twice, in another order, with one id only. Nothing is decided on it.

Each process remembers the last pushes that it took; a repetition that another process takes is not seen. The answers are
for the survey (`callkeeper.calls.assumptions`).

Assumed (`push-delivery`): a push arrives once, a CallStart before its CallEnd, with both ids. Anything else is accepted.
"""

from collections import OrderedDict
from typing import Final

from callkeeper.calls.store.push_intake import CALL_END, CALL_START
from callkeeper.service.endpoints import canonical_id
from callkeeper.service.open_questions import USUAL, Shown
from callkeeper.service.push_event import PushEvent

MOST: Final = 2000
"""How many calls a process remembers."""

_DELIVERY: Final = "push-delivery"

_USUAL: Final = {
    (kind, has_both): Shown(_DELIVERY, USUAL, f"{kind}, {'VoiceId and AlternateVoiceId' if has_both else 'VoiceId'}")
    for kind in (CALL_START, CALL_END)
    for has_both in (True, False)
}


class PushPatterns:
    """Looks at every push that one process takes."""

    def __init__(self) -> None:
        self._taken: OrderedDict[tuple[str, str], set[str]] = OrderedDict()

    def shown(self, event: PushEvent) -> Shown | None:
        """Return what a push shows of its delivery. Samples and unknown types show nothing."""
        if event.is_test or event.type not in {CALL_START, CALL_END}:
            return None
        call = event.institution_key, canonical_id(event.voice_id or event.alternate_voice_id or "")
        taken = self._taken.setdefault(call, set())
        self._taken.move_to_end(call)
        if len(self._taken) > MOST:
            self._taken.popitem(last=False)
        is_repeated, is_late = event.type in taken, event.type == CALL_START and CALL_END in taken
        taken.add(event.type)
        if is_repeated:
            return Shown(_DELIVERY, "events-doubled", f"{event.type} twice")
        if is_late:
            return Shown(_DELIVERY, "events-reversed", f"{CALL_END} before {CALL_START}")
        if event.voice_id is None:
            return Shown(_DELIVERY, "events-alternate-id", "AlternateVoiceId only")
        return _USUAL[event.type, bool(event.alternate_voice_id)]
