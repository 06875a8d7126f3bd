"""The world: institutions, members, calls and time.

Time comes from an injected clock; a change happens only when the caller applies what is `due`. All lookups use indexes,
so the cost of a request does not depend on the number of calls.
"""

import datetime as dt
import heapq
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from callkeeper_sandbox.service import forms
from callkeeper_sandbox.service.institutions import Core, InstitutionStatus, invented
from callkeeper_sandbox.service.options import Options
from callkeeper_sandbox.service.records import DriverLicense, PersonMatch, PersonType, Status
from callkeeper_sandbox.service.state import Call, Child, Due, Happening, Member, Provider, PushSettings, State, write

_OVER_KEPT = 1000

Clock = Callable[[], dt.datetime]
"""Returns the current instant as an aware UTC datetime."""


def utc_now() -> dt.datetime:
    """Return the current instant."""
    return dt.datetime.now(dt.UTC)


class CallEvent(msgspec.Struct, frozen=True):
    """A call event that waits to be pushed."""

    type: str
    voice_id: str
    at: dt.datetime


class World:
    """The state with its indexes, its clock and its outbox of call events."""

    def __init__(self, clock: Clock = utc_now, state: State | None = None) -> None:
        self.clock = clock
        self.state = state if state is not None else State()
        self.options = Options()
        self.outbox: deque[CallEvent] = deque()
        self.live: dict[str, dict[str, Call]] = defaultdict(dict)
        self.over: dict[str, deque[Call]] = defaultdict(lambda: deque(maxlen=_OVER_KEPT))
        self._real_ids: dict[str, str] = {}
        self._by_phone: dict[tuple[str, str], list[Member]] = defaultdict(list)
        self._by_person: dict[tuple[str, str], Member] = {}
        self.manual: dict[tuple[str, str], dict[str, Call]] = defaultdict(dict)
        for member in self.state.members:
            self._index_member(member)
        for call in self.state.calls.values():
            self._index_call(call)

    def number(self) -> int:
        """Return the next number, for ids and for the order of equal times."""
        self.state.number += 1
        return self.state.number

    def due(self) -> Iterator[Due]:
        """Yield the changes that are due, in order, also those that are scheduled meanwhile. The caller applies them."""
        now = self.clock()
        while self.state.due and self.state.due[0].at <= now:
            yield heapq.heappop(self.state.due)

    def next_due_at(self) -> dt.datetime | None:
        """Return the instant of the next change, if there is one."""
        return self.state.due[0].at if self.state.due else None

    def add_institution(
        self,
        key: str,
        name: str | None = None,
        *,
        core: Core = Core.TYPE_A,
        status: InstitutionStatus = InstitutionStatus.ACTIVE,
        is_test_mode: bool = False,
        has_voice_auth: bool = True,
        owned: bool = True,
        push: PushSettings | None = None,
    ) -> Child:
        """Add (or replace) an institution with invented, obviously fake configuration."""
        record = invented(
            self.number(),
            key,
            name or key,
            core,
            self.clock(),
            is_test_mode=is_test_mode,
            has_voice_auth=has_voice_auth,
        )
        push = PushSettings() if push is None else push
        child = Child(msgspec.structs.replace(record, status=status), owned=owned, push=push)
        self.state.institutions[key] = child
        return child

    def add_member(
        self,
        institution_key: str,
        person_id: str,
        phones: Iterable[str],
        *,
        first_name: str = "Test",
        last_name: str = "Person",
        person_type: PersonType = PersonType.PRIMARY,
    ) -> Member:
        """Add a member with invented personal data that can be searched for.

        The fake values carry `fake-` or, for the social security number, the never issued area 000.
        """
        serial = self.number()
        person = PersonMatch(
            first_name=first_name,
            last_name=last_name,
            person_id=person_id,
            name=f"{first_name} {last_name}",
            last4_ssn=f"{serial % 10000:04}",
            full_ssn=f"000-{serial // 10000 % 100:02}-{serial % 10000:04}",
            driver_license=DriverLicense(f"fake-licence-{serial}", "XX", dt.date(2099, 1, 1)),
            value_for_core=f"core-{person_id}",
            date_of_birth=dt.date(1900, 1, 1) + dt.timedelta(days=serial % 30000),
            support_password=f"fake-support-{serial}",
            person_type=person_type,
        )
        member = Member(institution_key, list(phones), person)
        self.state.members.append(member)
        self._index_member(member)
        return member

    def add_call(
        self,
        institution_key: str,
        phone_number: str,
        script: Iterable[Happening] = (),
        *,
        voice_id: str | None = None,
        alternate_id: str | None = None,
        started_at: dt.datetime | None = None,
        listed_after_s: float = 0.0,
        persons: list[dict[str, Any]] | None = None,
    ) -> Call:
        """Start a call, now unless `started_at` says otherwise, and schedule its script.

        Raises:
            ValueError: One of the ids is taken.

        Spec: What the service does 6 (a).
        """
        voice_id = voice_id or self.options.id_form(str(uuid.uuid4()))
        alternate_id = alternate_id or self.options.id_form(str(uuid.uuid4()))
        taken = [id_ for id_ in (voice_id, alternate_id) if id_ in self._real_ids]
        if taken:
            raise ValueError(f"id is taken: {taken[0]}")
        started_at = started_at or self.clock()
        call = Call(
            call_id=self.number(),
            voice_id=voice_id,
            alternate_id=alternate_id,
            institution_key=institution_key,
            phone_number=phone_number,
            destination="5550000000",
            started_at=started_at,
            listed_at=started_at + dt.timedelta(seconds=listed_after_s),
            updated_at=started_at,
            persons=persons,
            provider=Provider(),
        )
        self.state.calls[voice_id] = call
        self._index_call(call)
        write(call, Status.STARTED, started_at)
        self.outbox.append(CallEvent("CallStart", voice_id, started_at))
        for happening in script:
            self.schedule(call, happening, call.started_at)
        return call

    def schedule(self, call: Call, happening: Happening, since: dt.datetime) -> None:
        """Schedule a change of a call ``after_s`` seconds from an instant."""
        at = since + dt.timedelta(seconds=happening.after_s)
        heapq.heappush(self.state.due, Due(at, self.number(), call.voice_id, happening))

    def call(self, institution_key: str, given_id: str, *, alternate: bool) -> Call | None:
        """Find an institution's call by its voice id, or by its alternate id where that is resolved."""
        given_id = self._unspelled(given_id)
        real = self._real_ids.get(given_id)
        if real is None or (real != given_id and not alternate):
            return None
        call = self.state.calls[real]
        return call if call.institution_key == institution_key else None

    def any_call(self, given_id: str) -> Call | None:
        """Find a call of any institution by either id."""
        real = self._real_ids.get(self._unspelled(given_id))
        return self.state.calls[real] if real is not None else None

    def spelled(self, id_: str, place: Literal["push", "queue", "details", "assign"]) -> str:
        """Return an id as it is written in one place."""
        return id_.upper() if place in self.options.capital_ids and forms.is_guid(id_) else id_

    def _unspelled(self, given_id: str) -> str:
        """Return an id of a request as it is stored."""
        if given_id in self._real_ids or not self.options.capital_ids or not forms.is_guid(given_id):
            return given_id
        return given_id.upper() if given_id.upper() in self._real_ids else given_id.lower()

    def by_phone(self, institution_key: str, phone_number: str) -> Call | None:
        """Find the latest live call from a number.

        Assumed: the Spec does not say which of several calls is meant.
        """
        calls = reversed(self.live[institution_key].values())
        return next((call for call in calls if call.phone_number == phone_number), None)

    def candidates(self, call: Call) -> list[Member]:
        """Return the members whom the core system knows by the call's number.

        Spec: Queue query, rules.
        """
        return self._by_phone.get((call.institution_key, call.phone_number), [])

    def member(self, institution_key: str, person_id: str | None) -> Member | None:
        return self._by_person.get((institution_key, person_id)) if person_id is not None else None

    def has_had_calls(self, institution_key: str) -> bool:
        return bool(self.live[institution_key] or self.over[institution_key])

    def ended(self, call: Call, at: dt.datetime) -> None:
        """Remove an ended call from the queue and announce its end."""
        self.live[call.institution_key].pop(call.voice_id, None)
        self.over[call.institution_key].append(call)
        self.outbox.append(CallEvent("CallEnd", call.voice_id, at))

    def _index_call(self, call: Call) -> None:
        self._real_ids[call.voice_id] = call.voice_id
        self._real_ids[call.alternate_id] = call.voice_id
        if call.ended_at is None:
            self.live[call.institution_key][call.voice_id] = call
        if call.manual_person_id is not None:
            self.manual[call.institution_key, call.manual_person_id][call.voice_id] = call

    def _index_member(self, member: Member) -> None:
        self._by_person[member.institution_key, member.person.person_id] = member
        for phone in member.phones:
            self._by_phone[member.institution_key, phone].append(member)
