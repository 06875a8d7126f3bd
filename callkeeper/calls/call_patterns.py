"""What readings, notes and effects of calls show of the service's behaviour where its document is silent. Pure functions.

They name what was seen (`Shown`), for the survey. Nothing is decided on it. `callkeeper.calls.assumptions` says what each
answer means.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import DONE, EffectKind, EffectState
from callkeeper.calls.fact_derivation import research_of
from callkeeper.calls.notes import Listed, Note, Pushed, entry_expected, fingerprint, is_same_entry
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import Call, Phase, Reading
from callkeeper.calls.settlement import HINT_LIVES, SETTLE_AFTER
from callkeeper.calls.statuses import STATUSES
from callkeeper.service.endpoints import is_same_id, spelling_of
from callkeeper.service.enumerations import CallStatus
from callkeeper.service.open_questions import AHEAD, USUAL, ZONES, Shown
from callkeeper.service.phone_calls import PhoneCall

_KNOWN: Final = frozenset(STATUSES)
_UNDECIDED: Final = frozenset(
    {None, "CallStarted", "GrabbedCall", "CheckRiskAndAuthentication", CallStatus.VOICE_PENDING}
)
_DECIDED: Final = frozenset(
    {
        CallStatus.FULL_AUTHENTICATION,
        CallStatus.FULL_AUTHENTICATION_UNENROLLED,
        CallStatus.ACCEPT_CALLER_VOICE,
        CallStatus.REJECT_CALLER_VOICE,
    }
)


def repeats_last(before: Call, reading: Reading) -> bool:
    """Tell whether a reading of a live call equals the last one, apart from its time, so that it shows nothing new.

    Return False while a change is expected: after the end, an assign or enroll of ours or a reject of the member, and
    when the queue or the details have only just shown the call. There an equal reading is an answer, too.
    """
    last, life, sent_at = before.seen.reading, before.life, before.ledger.assign.sent_at
    if last is None or (sent_at is not None and last.read_at <= sent_at):
        return False
    is_change_due = (
        life.ended_at is not None
        or life.is_unlisted
        or life.not_found_since is not None
        or (life.listed_at is not None and life.listed_at > last.read_at)
        or before.plan.recheck_from is not None
        or before.ledger.enroll.state in DONE
    )
    return not is_change_due and replace(last, read_at=reading.read_at) == reading


def seen_in_reading(before: Call, after: Call, phone_call: PhoneCall, policies: Policies, zone: str) -> Iterator[Shown]:
    """Yield what a reading shows. Callers skip one that `repeats_last`.

    ``zone`` is how the service writes instants, as `client.Reseller.date_zone`.
    """
    reading = after.seen.reading
    assert reading is not None  # noqa: S101  (narrows: it was just folded)
    yield Shown("answer-names-call", USUAL if reading.voice_id else "answer-without-id")
    yield from _spelled(before, phone_call)
    yield from _found(before, after, reading)
    yield from _status(before, after, reading)
    yield from _clock(before, reading, zone)
    yield from _assigned(before, reading)
    yield from _person(before, reading)
    yield from _policies(before, after, reading, policies)
    yield from _enrolled(after, reading)
    yield from _unenrolled(before, after, reading)
    yield from _case(after, reading)
    if after.names.alternate_id is not None and (alternate_ids := phone_call.alternate_ids):
        is_it = any(is_same_id(each, after.names.alternate_id) for each in alternate_ids)
        yield Shown("alternate-id-field", USUAL if is_it else "alternate-id-elsewhere")


def _status_words(status: str | None) -> str:
    return f"status {status}" if status in _KNOWN or status is None else f"status, a text of {len(status)}"


def _spelled(before: Call, phone_call: PhoneCall) -> Iterator[Shown]:
    """Yield how queue and details spell one GUID. Only the first reading can be compared with the queue's spelling."""
    if before.seen.reading is not None or before.life.listed_at is None or not phone_call.voice_id:
        return
    queue, details = before.names.spelled, spelling_of(phone_call.voice_id)
    yield Shown("voice-id-spelling", _spelling({"queue": queue, "details": details}), "a GUID in queue and details")


def _spelling(places: dict[str, str | None]) -> str:
    """Return the name of the answer, given how places spell one id if that is not the canonical way."""
    others = {place: text for place, text in places.items() if text is not None}
    if not others:
        return USUAL
    if not all(text.isupper() for text in others.values()):
        return "ids-spelled-otherwise"
    return "ids-capital" if len(others) == len(places) else f"ids-capital-in-{next(iter(others))}"


def _found(before: Call, after: Call, reading: Reading) -> Iterator[Shown]:
    if before.life.phase is Phase.HINTED and before.life.listed_at is None:
        yield Shown("details-before-queue")
    if reading.has_ended:
        yield Shown("ended-found")
    if before.life.not_found_since is not None:
        yield Shown("not-found-is-delay")
    if before.life.is_unlisted and reading.has_ended:
        yield Shown("queue-lists-live")
    elif before.life.is_unlisted and reading.person_id is not None and not before.is_settled:
        yield Shown("queue-lists-live", "assigned-not-listed", "a live call with a person is not in the queue")
    if before.seen.reading is None and after.life.started_at is not None and reading.created_at is not None:
        apart = after.life.started_at - reading.created_at
        shape = f"the start is {apart.total_seconds():+.0f} s from the creation"
        if abs(apart) <= STARTS_APART:
            yield Shown("start-and-creation", USUAL, shape)
        else:
            yield Shown("start-and-creation", "starts-in-future" if apart > timedelta() else "starts-earlier", shape)


STARTS_APART: Final = timedelta(seconds=60)
"""How far the creation of a record may be from the call's start in the queue (`start-and-creation`)."""

_APART: Final = timedelta(seconds=2)


def _status(before: Call, after: Call, reading: Reading) -> Iterator[Shown]:
    last, status = before.seen.reading, reading.status
    yield Shown(
        "statuses-known", USUAL if status in _KNOWN or status is None else "status-unknown", _status_words(status)
    )
    if last is not None and last.status != status:
        if reading.updated_at != last.updated_at:
            yield Shown("activity-moves-updated", USUAL, _status_words(status))
        elif reading.read_at - last.read_at >= _APART:  # two activities in one second have the same instant
            yield Shown("activity-moves-updated", "updated-stays", _status_words(status))
    if status is None and last is None:
        yield Shown("activities", "status-null-at-first", "status null")
    if last is not None and last.status in _DECIDED and status == "AgentViewed":
        yield Shown("activities", "status-overwritten", f"{last.status}, then {status}")
    yield from _end_status(after, last, reading)


def _end_status(after: Call, last: Reading | None, reading: Reading) -> Iterator[Shown]:
    """Yield which status a call has some time after its end, unless an effect of ours came after that."""
    ended_at = after.life.ended_at
    if ended_at is None or last is None or not last.has_ended or reading.read_at < ended_at + SETTLE_AFTER:
        return
    sent = (after.effect(kind).sent_at for kind in EffectKind)
    if any(at is not None and at > ended_at - SETTLE_AFTER for at in sent):
        return
    if reading.status == CallStatus.CALL_ENDED:
        yield Shown("activities", USUAL, _status_words(reading.status))
    elif reading.status == last.status and not after.seen.unenrolled:
        yield Shown("activities", "end-keeps-status", f"{_status_words(reading.status)} after the end")


_SOON: Final = timedelta(seconds=30)
_NEAR: Final = timedelta(seconds=50)
_PLACEHOLDER: Final = timedelta(days=300)
_QUARTER: Final = timedelta(minutes=15)


def _clock(before: Call, reading: Reading, zone: str) -> Iterator[Shown]:
    """Yield by how much the service's clock is ahead: a change between two readings happened between them."""
    last, updated_at = before.seen.reading, reading.updated_at
    if last is None or updated_at is None or updated_at == last.updated_at or last.updated_at is None:
        return
    took = reading.read_at - last.read_at
    if not timedelta() <= took <= _SOON:
        return
    ahead = updated_at - reading.read_at + took / 2
    if abs(ahead) > _PLACEHOLDER:
        return
    shape = f"{ahead.total_seconds():+.0f} s from our clock, {ZONES.get(zone, 'form unknown')}"
    if zone == "none":
        if _is_of_a_zone(ahead):
            yield Shown("dates-without-zone", f"dates-local-{'east' if ahead > timedelta() else 'west'}", shape)
            return
        yield Shown("dates-without-zone", "dates-without-zone", shape)
    if abs(ahead) < _NEAR:
        yield Shown("service-clock", USUAL, shape)
    else:
        nearest = min(AHEAD, key=lambda known: abs(ahead - known))
        answer = AHEAD[nearest] if abs(ahead - nearest) < _NEAR else "clock-differs"
        yield Shown("service-clock", answer, shape)


def _is_of_a_zone(ahead: timedelta) -> bool:
    """Tell whether a zone can explain a difference: they differ from UTC by quarters of an hour, from two of them up."""
    zone = round(ahead / _QUARTER) * _QUARTER
    return abs(zone) >= 2 * _QUARTER and abs(ahead - zone) < _NEAR


def _assigned(before: Call, reading: Reading) -> Iterator[Shown]:
    """Yield what the first reading after an assign of ours shows."""
    effect, last = before.ledger.assign, before.seen.reading
    if effect.state not in DONE or effect.sent_at is None or (last is not None and last.read_at > effect.sent_at):
        return
    shape = _status_words(reading.status)
    # An assign in the first moment of a call, or one whose status shows later, would look the same.
    is_known = before.life.first_seen_at is not None and effect.sent_at - before.life.first_seen_at >= timedelta(
        seconds=2
    )
    earlier_at = {reading.created_at, last.updated_at if last is not None else reading.created_at}
    is_old = is_known and reading.updated_at in earlier_at
    if reading.status == "GrabbedCall":
        yield Shown("activities", USUAL, shape)
    elif is_old and (reading.status is None or reading.status == "CallStarted"):
        yield Shown("activities", "assign-keeps-status", f"{shape} after an assign")
    if reading.core_username is None:
        yield Shown("assign-shows-username", "assign-without-username", "coreUsername null after an assign")
    elif reading.core_username == effect.requested_by:
        yield Shown("assign-shows-username", USUAL, f"coreUsername a text of {len(reading.core_username)}")
    earlier = last.person_id if last is not None else None
    if earlier is not None and earlier != effect.person_id:
        if reading.person_id == effect.person_id:
            yield Shown("assign-replaces-person", USUAL, "another personId after the assign")
        elif reading.person_id == earlier:
            yield Shown("assign-replaces-person", "assign-over-ignored", "the same personId after the assign")


def _person(before: Call, reading: Reading) -> Iterator[Shown]:
    """Yield whether a call that nobody has assigned shows its only match as its person."""
    if (
        before.life.listed_at is None
        or before.seen.core_username
        or reading.core_username
        or len(before.seen.candidates) != 1
    ):
        return
    if before.ledger.assign.state is not EffectState.NONE or reading.has_ended:
        return
    if reading.person_id is not None:
        yield Shown("person-without-username", "person-prefilled", "personId in details, coreUsername null")
    elif before.seen.person_id is not None:
        yield Shown("person-without-username", "person-prefilled-in-queue", "personId in the queue, null in details")
    else:
        yield Shown("person-without-username", USUAL, "personId null")


def _policies(before: Call, after: Call, reading: Reading, policies: Policies) -> Iterator[Shown]:
    colours = policies.colours(reading.policies)
    if reading.policies:
        is_known = Colour.UNCLASSIFIED not in colours
        answer = USUAL if is_known else "policy-without-colour"
        yield Shown("policy-colour", answer, f"{len(reading.policies)} policies")
    if reading.has_ended or after.seen.unenrolled or before.plan.recheck_from is not None:
        return
    is_green, last = Colour.GREEN in colours or MANUAL_GREEN in reading.policies, before.seen.reading
    was_green = last is not None and (MANUAL_GREEN in last.policies or Colour.GREEN in policies.colours(last.policies))
    shape = f"{_status_words(reading.status)}, {'a' if is_green else 'no'} green policy"
    if reading.status == CallStatus.FULL_AUTHENTICATION:
        if is_green:
            yield Shown("policy-with-status", USUAL, shape)
        elif not was_green:
            yield Shown("policy-with-status", "policy-after-status", shape)
    elif is_green and reading.status in _UNDECIDED and not before.seen.full_authentication:
        yield Shown("policy-with-status", "policy-before-status", shape)


def _enrolled(after: Call, reading: Reading) -> Iterator[Shown]:
    """Yield what an enroll of ours has left, while its policy shows."""
    if after.ledger.enroll.state not in DONE or after.seen.unenrolled or after.seen.rejected:
        return
    if reading.status == CallStatus.ACCEPT_CALLER_VOICE:
        yield Shown("activities", "enroll-ends-accepted", _status_words(reading.status))
    if MANUAL_GREEN not in reading.policies:
        return
    yield Shown("enroll-applies-policy")
    raised = {
        "isEnrolled": reading.is_enrolled,
        "isAccountEnrolled": reading.is_account_enrolled,
        "isDeviceEnrolled": reading.is_device_enrolled,
        "successfulVoiceEnrollment": reading.was_voice_enrolled_now,
        "isBehaviorEnrolled": reading.is_behavior_enrolled,
        "isVoiceVerified": reading.is_voice_verified,
    }
    shape = "raised: " + (", ".join(name for name, flag in raised.items() if flag) or "none")
    answer = "enroll-raises-all" if all(raised.values()) else USUAL if any(raised.values()) else "enroll-raises-none"
    yield Shown("enroll-traces", answer, shape)


_SILENT_AFTER: Final = timedelta(seconds=10)
"""If the status still says this long after a reject of the member that the voice is enrolled, no activity was written."""


def _unenrolled(before: Call, after: Call, reading: Reading) -> Iterator[Shown]:
    """Yield how a reject of the member in another call has taken the enroll of this one back."""
    rejected_at, last, status = before.plan.recheck_from, before.seen.reading, reading.status
    if rejected_at is None:
        return
    if status in (CallStatus.FULL_AUTHENTICATION, CallStatus.ACCEPT_CALLER_VOICE):
        is_gone = MANUAL_GREEN not in reading.policies and before.ledger.enroll.state in DONE
        if is_gone and reading.read_at >= rejected_at + _SILENT_AFTER:
            yield Shown("reject-unenrolls", "unenrolled-silently", f"{_status_words(status)}, without the policy")
    elif status == CallStatus.FULL_AUTHENTICATION_UNENROLLED and after.seen.unenrolled and not before.seen.unenrolled:
        since_s = (reading.read_at - rejected_at).total_seconds()
        is_late = last is not None and last.read_at > rejected_at and MANUAL_GREEN in last.policies
        yield Shown("reject-unenrolls", "unenrolled-later" if is_late else USUAL, f"within {since_s:.0f} s")


def _case(after: Call, reading: Reading) -> Iterator[Shown]:
    status = reading.research_status
    if status is None:
        yield Shown("research-case", USUAL, "researchCase null")
    elif reading.research_voice_id is not None and research_of(after)[0] is None:
        yield Shown("research-case", "case-of-another-call", "its voiceId is another")
    elif status == "SystemArchived":
        yield Shown("research-case", "case-archived", f"researchStatus {status}")
    elif status in ("InReview", "FalsePositive", "DeterminedFraud"):
        yield Shown("research-case", "case-goes-on", f"researchStatus {status}")


def seen_in_notes(before: Call, notes: Sequence[Note]) -> Iterator[Shown]:
    """Yield what pushes and listings of a call show. ``before`` is the call without them."""
    pushed = [note for note in notes if isinstance(note, Pushed)]
    for note in notes:
        if isinstance(note, Listed):
            yield from _listed(before, note, pushed)


def _listed(before: Call, note: Listed, pushed: Sequence[Pushed]) -> Iterator[Shown]:
    if before.life.listed_at is not None:
        if not before.seen.candidates and note.candidates and before.seen.person_id is None:
            shape = f"{len(note.candidates)} candidates, none before"
            yield Shown("queue-candidates", "persons-late", shape)
        shown = fingerprint(replace(note, phone_number=None))  # an assign changes no number
        if before.ledger.assigned_as is not None and not is_same_entry(shown, entry_expected(before)):
            yield Shown("entry-after-assign", "entry-differs", "personId, coreUsername or persons changed")
        return
    hints = [each.spelled for each in pushed] or ([before.names.spelled] if before.life.hinted_at is not None else [])
    if hints:
        answer = _spelling({"pushes": hints[0], "queue": note.spelled})
        # What the queue spells alone in capitals is compared with the record, and not with pushes.
        if answer != "ids-capital-in-queue":
            yield Shown("voice-id-spelling", answer, "a GUID in pushes and queue")
    hinted_at = before.life.hinted_at or min((each.received_at for each in pushed), default=None)
    if hinted_at is not None:
        is_soon = note.listed_at - hinted_at <= HINT_LIVES
        yield Shown("queue-within-10-s", USUAL if is_soon else "listed-late")


def seen_in_effect(call: Call, kind: EffectKind, state: EffectState, *, is_refused: bool) -> Iterator[Shown]:
    """Yield what the answer to an effect shows. ``call`` is as it was when the effect was sent."""
    effect, has_ended = call.effect(kind), call.life.ended_at is not None
    if is_refused:
        if effect.refusal is not None:
            yield Shown("refusal-may-pass", "refused-again", kind)
        if has_ended:
            answer = "reject-after-end-refused" if kind is EffectKind.REJECT else "effects-after-end-refused"
            yield Shown("effects-after-end", answer, kind)
        elif kind is EffectKind.ASSIGN and call.seen.person_id not in {None, effect.person_id}:
            yield Shown("assign-replaces-person", "assign-over-refused", "refused over another person")
    elif state is EffectState.APPLIED:
        if effect.refusal is not None:
            yield Shown("refusal-may-pass", USUAL, kind)
        if has_ended:
            yield Shown("effects-after-end", USUAL, kind)
        if kind is EffectKind.ENROLL and not call.seen.opted_in:
            yield Shown("enroll-needs-no-opt-in")


def seen_in_assigned_id(spelled: str, answered: str) -> Shown:
    """Return how the answer to an assign spells the id that it was asked about."""
    is_capital = answered != spelled and spelling_of(answered) is not None and answered.isupper()
    return Shown(
        "voice-id-spelling", "ids-capital-in-assign" if is_capital else USUAL, "a GUID in the answer to assign"
    )
