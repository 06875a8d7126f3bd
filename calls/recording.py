"""A recorded call: what it came to and its whole trail, as one line of JSON. What is exported, replayed, reported and told.

The shape is versioned by its ``format`` field; a reader refuses another version. Its fields are those of a trail: nothing
sensitive has a field to go to.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from calls.record import Call, EffectState, Phase, Reason
from calls.trail import Entry

FORMAT = "callkeeper.trail/1"


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="format", tag=FORMAT):
    """One call and its trail, oldest line first."""

    institution_key: str
    voice_id: str
    phase: Phase
    trail: tuple[Entry, ...]
    alternate_id: str | None = None
    started_at: datetime | None = None
    reason: Reason | None = None
    person_id: str | None = None
    checks_used: int = 0
    assign: EffectState = EffectState.NONE
    enroll: EffectState = EffectState.NONE
    reject: EffectState = EffectState.NONE

    @property
    def begins_at(self) -> datetime | None:
        """Return the instant that times are counted from: the call's start, else the first that was heard of it."""
        return self.started_at or (self.trail[0].at if self.trail else None)


class RecordingWrong(Exception):
    """A file of recorded calls has a line that is none. Says which, and what is wrong with it."""


def recorded(call: Call, trail: Iterable[Entry]) -> Recorded:
    """Return a call's record and its trail as one."""
    return Recorded(
        institution_key=call.institution_key,
        voice_id=call.voice_id,
        trail=tuple(trail),
        alternate_id=call.alternate_id,
        started_at=call.started_at,
        phase=call.phase,
        reason=call.reason,
        person_id=call.person_id,
        checks_used=call.checks_used,
        assign=call.assign.state,
        enroll=call.enroll.state,
        reject=call.reject.state,
    )


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Recorded)


def encode_recorded(call: Recorded) -> bytes:
    """Write a recorded call as one line, without the line end."""
    return _ENCODER.encode(call)


def parse_recordings(lines: Iterable[bytes]) -> Iterator[Recorded]:
    """Read recorded calls, one a line; empty lines are passed over.

    Raises:
        RecordingWrong: A line is not a recorded call of this format.
    """
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _DECODER.decode(line)
        except msgspec.MsgspecError as error:
            raise RecordingWrong(f"line {n} is not a call as exported by callkeeper calls export: {error}") from None
