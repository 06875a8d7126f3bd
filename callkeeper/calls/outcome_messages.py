"""Outcome messages: the body of a webhook post, version 1, with the JSON Schema and an example for every type. Pure.

They hold ids, names of reasons and rules, and core usernames, but no phone numbers and no names of members
(docs/data.md). Within a version fields are only added.
"""

from datetime import UTC, datetime
from typing import Any, Final, get_args

import msgspec

from callkeeper.calls.effect_resolution import ENROLLED_SINCE
from callkeeper.calls.item_names import CallId
from callkeeper.calls.outcomes_of_trails import CallOutcome, OutcomeType
from callkeeper.calls.record import Call

VERSION: Final = 1
TEST: Final = CallId("", "test")
"""Used in place of a call for a test message. No institution has an empty key."""
TEST_TYPE: Final = "callkeeper.test"


class OutcomeData(msgspec.Struct, frozen=True, kw_only=True):
    """What an outcome says of its call, who caused it, and why.

    Attributes:
        institution_key: The call's institution.
        voice_id: The call.
        alternate_id: Its other id, if it has one.
        person_id: The member that the call was assigned to then, or that the enroll or reject was for, by the
            institution's own id.
        reason: Why: the reason why a call is settled, or the rule's sentence.
        effect: The assign, enroll or reject of ours that it is about; null: none of ours. `enroll` if an enroll was taken
            back, whoever made it.
        validation_type: How identity was established.
        operator: Core username of the person whose statement caused it; null: only a rule, or somebody elsewhere.
        requested_by: Core username under which the service recorded the effect.
        rule: The rule that decided.
        status: The last status in the service's record of the call.
        forbidden: The law's reasons against the effect.
        checks_used: Authentication checks that the call has used, of 20.
    """

    institution_key: str
    voice_id: str
    alternate_id: str | None
    person_id: str | None
    reason: str | None
    effect: str | None
    validation_type: str | None
    operator: str | None
    requested_by: str | None
    rule: str | None
    status: str | None
    forbidden: tuple[str, ...]
    checks_used: int


class TestData(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a test message."""

    __test__ = False

    note: str


class OutcomeMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome of a call. ``timestamp`` is when it became true."""

    type: str
    version: int = VERSION
    timestamp: datetime
    data: OutcomeData


class TestMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that somebody sent with "send a test". It is about no call."""

    __test__ = False

    type: str = TEST_TYPE
    version: int = VERSION
    timestamp: datetime
    data: TestData = TestData(note="A test. Nothing happened to any call.")


Message = OutcomeMessage | TestMessage


def message_of(call: Call, outcome: CallOutcome) -> OutcomeMessage:
    """Return the message for an outcome of a call."""
    cause, line = outcome.cause, outcome.line
    data = OutcomeData(
        institution_key=call.institution_key,
        voice_id=call.voice_id,
        alternate_id=call.names.alternate_id,
        person_id=line.person_id or cause.person_id or call.seen.person_id,
        reason=cause.reason,
        effect=cause.effect,
        validation_type=cause.validation_type,
        operator=cause.operator,
        requested_by=cause.requested_by,
        rule=cause.rule,
        status=cause.status,
        forbidden=line.forbidden if outcome.type == "held" else (),
        checks_used=call.plan.checks_used,
    )
    return OutcomeMessage(type=f"call.{outcome.type}", timestamp=outcome.at, data=data)


def message_id(call_id: CallId, outcome: CallOutcome) -> str:
    """Return the id of an outcome's message. It is the same however often it is sent."""
    return f"{call_id.member}.{outcome.n}.{outcome.type}"


MEANINGS: Final[dict[str, str]] = {
    "call.authenticated": (
        "The voice was authenticated, without a red policy: as the member `person_id`; null: nobody is assigned."
    ),
    "call.rejected": "The voice was rejected, by us (`effect`) or by somebody elsewhere.",
    "call.enrolled": "The voice was enrolled for the member, by us (`effect`) or by somebody elsewhere.",
    "call.unenrolled": "A reject of the member took the enroll back.",
    "call.held": "What a rule or a person asked for (`effect`) is not sent; `forbidden` gives the law's reasons.",
    "call.asked": "A rule asks a person about the call; `reason` is its sentence.",
    "call.refused": "The service refused the effect for good (`reason` has its words); a person has to look.",
    "call.not_carried_out": (
        "The effect was not applied (`reason`): a person looked, a reject would take back a later "
        "enroll, Redis has lost the record of the call, which had ended, "
        "or the law held a distrust back until the call was settled. Nothing repeats it by itself."
    ),
    "call.unresolved": "Nothing proves whether the effect was applied: a person has to look at the service.",
    "call.settled": "The call has ended and is settled; `reason` says with which result.",
    TEST_TYPE: 'Somebody pressed "send a test".',
}
"""The meaning of each type, in the order of the documentation."""

_ALWAYS: Final[dict[str, tuple[str, ...]]] = {
    "call.unenrolled": ("effect", "reason"),
    "call.held": ("effect",),
    "call.asked": ("rule", "reason"),
    "call.refused": ("effect", "reason"),
    "call.not_carried_out": ("effect", "reason"),
    "call.unresolved": ("effect",),
    "call.settled": ("reason",),
}
"""The data fields that are never null in messages of a type."""

_COMMON: Final[dict[str, Any]] = {
    "institution_key": "cu-1",
    "voice_id": "5f0c9d1e-0001",
    "alternate_id": None,
    "person_id": "p-1001",
    "reason": None,
    "effect": None,
    "validation_type": None,
    "operator": None,
    "requested_by": None,
    "rule": None,
    "status": None,
    "forbidden": [],
    "checks_used": 3,
}
_BY_PASSCODE: Final = {
    "effect": "enroll",
    "operator": "agent-7",
    "requested_by": "agent-7",
    "rule": "verified at the desk",
}
_SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "call.authenticated": {"status": "FullAuthentication"},
    "call.rejected": {"effect": "reject", "operator": "agent-7", "requested_by": "agent-7", "rule": "distrusted"},
    "call.enrolled": {**_BY_PASSCODE, "validation_type": "OneTimePasswordAuth", "status": "MFAValidated"},
    "call.unenrolled": {"effect": "enroll", "reason": "member_rejected", "status": "FullAuthenticationUnenrolled"},
    "call.held": {**_BY_PASSCODE, "requested_by": None, "forbidden": ["opted_out"], "status": "VoiceOptOut"},
    "call.asked": {"rule": "new device", "reason": "The device is new. Is it the member's?"},
    "call.refused": {
        "effect": "reject",
        "operator": "agent-7",
        "requested_by": "agent-7",
        "reason": "refused: try later",
    },
    "call.not_carried_out": {
        "effect": "reject",
        "operator": "agent-7",
        "requested_by": "agent-7",
        "rule": "distrusted",
        "reason": ENROLLED_SINCE,
    },
    "call.unresolved": {**_BY_PASSCODE, "validation_type": "OneTimePasswordAuth"},
    "call.settled": {**_BY_PASSCODE, "reason": "enrolled", "status": "AcceptCallerVoice"},
}
_EXAMPLE_AT: Final = datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC)


def example_of(kind: str) -> dict[str, Any]:
    """Return an example message of a type, as JSON."""
    if kind == TEST_TYPE:
        return dict(msgspec.to_builtins(TestMessage(timestamp=_EXAMPLE_AT)))
    data = {**_COMMON, **_SPECIAL[kind]}
    return {"type": kind, "version": VERSION, "timestamp": "2026-11-21T12:00:05Z", "data": data}


def schemas(ref_template: str) -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas (2020-12) of all types by name, with those that they refer to.

    ``ref_template`` is the path of a schema, with ``{name}``.
    """
    _, found = msgspec.json.schema_components((OutcomeMessage, TestMessage), ref_template=ref_template)
    return {**found, **{schema_name(kind): _schema_of(kind, ref_template) for kind in MEANINGS}}


def schema_name(kind: str) -> str:
    """Return the name of a type's schema, for example ``CallSettled``."""
    return "".join(word.capitalize() for word in kind.split("."))


def _schema_of(kind: str, ref_template: str) -> dict[str, Any]:
    whole = "TestMessage" if kind == TEST_TYPE else "OutcomeMessage"
    properties: dict[str, Any] = {"type": {"const": kind}, "version": {"const": VERSION}}
    if kind in _ALWAYS:
        properties["data"] = {"properties": {name: {"type": "string"} for name in _ALWAYS[kind]}}
    return {
        "description": MEANINGS[kind],
        "allOf": [{"$ref": ref_template.format(name=whole)}, {"properties": properties}],
        "required": ["type", "version", "timestamp", "data"],
        "examples": [example_of(kind)],
    }


assert {f"call.{kind}" for kind in get_args(OutcomeType)} | {TEST_TYPE} == set(MEANINGS)  # noqa: S101  (a closed set)
