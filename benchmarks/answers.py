"""Templates of the service's answers. ``sandbox`` encodes each once; only voice ids and instants are filled in."""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from callkeeper_sandbox.service import population, views
from callkeeper_sandbox.service.answers import Base, TokenAnswer
from callkeeper_sandbox.service.state import Call, PushSettings
from callkeeper_sandbox.service.world import World, utc_now

KEY = "cu-1"
"""The institution of every call."""

PERSON = "cu-1-m10"
"""The only candidate of every call, to whom it is assigned."""

STATUS = "CheckRiskAndAuthentication"
"""The service's answer about a call that is being watched."""

_VOICE = "00000000-feed-4000-8000-000000000000"
_STARTED_AT = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Template:
    """An answer with gaps for the values that differ between calls, in the order of their first appearance."""

    parts: tuple[bytes, ...]
    order: tuple[int, ...]

    @classmethod
    def cut(cls, answer: object, *gaps: str) -> "Template":
        """Encode an answer and cut the gaps out of it."""
        body = msgspec.json.encode(answer)
        pieces = re.split(b"(" + b"|".join(re.escape(gap.encode()) for gap in gaps) + b")", body)
        return cls(tuple(pieces[::2]), tuple(gaps.index(gap.decode()) for gap in pieces[1::2]))

    def fill(self, *values: bytes) -> bytes:
        """Return the answer with each gap filled."""
        filled = [self.parts[0]]
        for gap, part in zip(self.order, self.parts[1:], strict=True):
            filled += (values[gap], part)
        return b"".join(filled)


@dataclass(slots=True)
class Known:
    """One call of the stand-in: when it began, whether it has a person, its entry in the queue."""

    voice_id: bytes
    started_at: bytes
    is_assigned: bool
    entry: bytes = b""


@dataclass(slots=True)
class Answers:
    """Every answer that the benchmarks need."""

    token: bytes
    institutions: bytes
    base: bytes
    unassigned: Template
    assigned: Template
    entry: Template
    claimed_entry: Template
    unknown: bytes = field(default=b'{"success":false,"error":"Call not found."}')

    @classmethod
    def prepare(cls) -> "Answers":
        """Encode one answer of each kind with the stand-in of the tests."""
        world = World(utc_now)
        population.settle(world, PushSettings())
        call = world.add_call(KEY, population.phone(KEY, 10), voice_id=_VOICE, started_at=_STARTED_AT)
        gaps = _VOICE, msgspec.json.encode(_STARTED_AT).decode().strip('"')
        unassigned, entry = (
            Template.cut(_details(world, call), *gaps),
            Template.cut(views.queue_entry(world, call), *gaps),
        )
        call.person_id, call.core_username, call.status = PERSON, "bench", STATUS
        owned = [world.state.institutions[KEY].record]  # callkeeper acts for every listed institution
        return cls(
            token=msgspec.json.encode(
                TokenAnswer(
                    token="5eed5eed-0000-4000-8000-000000000000",  # noqa: S106  (of a stand-in)
                    expires_on=datetime(2100, 1, 1, tzinfo=UTC),
                    institution_keys=[KEY],
                )
            ),
            institutions=msgspec.json.encode({"success": True, "institutions": owned}),
            base=msgspec.json.encode(Base()),
            unassigned=unassigned,
            assigned=Template.cut(_details(world, call), *gaps),
            entry=entry,
            claimed_entry=Template.cut(views.queue_entry(world, call), *gaps),
        )

    def details(self, call: Known) -> bytes:
        """Return the record of a call."""
        return (self.assigned if call.is_assigned else self.unassigned).fill(call.voice_id, call.started_at)

    def listed(self, call: Known) -> bytes:
        """Return the entry of a call in the queue."""
        return (self.claimed_entry if call.is_assigned else self.entry).fill(call.voice_id, call.started_at)


def _details(world: World, call: Call) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(views.phone_call(world, call))
    return {**msgspec.to_builtins(Base()), "phoneCall": record, **record}
