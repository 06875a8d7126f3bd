"""The types of the desk's answers, as in its OpenAPI document. Fields may be added: ignore unknown ones."""

from typing import TypedDict


class Candidate(TypedDict):
    """A member whose number matches the caller's."""

    person_id: str
    name: str
    person_type: str | None


class Verified(TypedDict):
    """How and by whom the caller's identity was established."""

    person_id: str
    validation_type: str
    by_desk: bool
    operator: str | None
    at: str


class Asked(TypedDict):
    """What a rule asks a person about a call, and since when."""

    rule: str
    because: str
    at: str


class Effect(TypedDict):
    """The state of one assign, enroll or reject."""

    state: str
    person_id: str | None
    validation_type: str | None
    operator: str | None
    sent_at: str | None


class Effects(TypedDict):
    """The three effects of a call."""

    assign: Effect
    enroll: Effect
    reject: Effect


class Call(TypedDict):
    """A call as it is now. Times are ISO 8601 in UTC."""

    institution_key: str
    voice_id: str
    revision: int
    alternate_id: str | None
    phone_number: str | None
    phase: str
    reason: str | None
    started_at: str | None
    ended_at: str | None
    settled_at: str | None
    person_id: str | None
    claimed_by: str | None
    assigned_by_us: bool
    candidates: list[Candidate]
    status: str | None
    policies: list[str]
    green: bool
    red: bool
    manual: bool
    unenrolled: bool
    rejected: bool
    distrusted: bool
    opted_out: bool
    voice_mismatch: bool
    high_risk_device: bool
    red_seen: bool
    voice_checked: bool
    voice_undecided: bool
    research: str | None
    research_elsewhere: str | None
    rejected_before: bool
    unenrolled_before: bool
    fraud_before: bool
    suspected_before: bool
    opted_out_before: bool
    earlier_calls: dict[str, str]
    voice_enrolled: bool
    voice_match_rule: bool
    validation_rule: str | None
    verification_questions: int
    provider_error: str | None
    paused: bool
    verified: Verified | None
    asked: Asked | None
    checks_used: int
    checks_left: int
    next_check_at: str | None
    effects: Effects


class Row(TypedDict):
    """The result of one rule in a decision."""

    mark: str
    rule: str
    text: str


class Line(TypedDict):
    """One line of a call's story. Times are seconds from its start."""

    at_s: float
    until_s: float | None
    tone: str
    text: str
    rows: list[Row]


class Story(TypedDict):
    """A call and what happened to it."""

    call: Call
    story: list[Line]
    ending: str


class Reason(TypedDict):
    """Why an action is held or refused."""

    name: str
    meaning: str


class Action(TypedDict):
    """The state of a person's action."""

    action_id: str
    action: str
    state: str
    reasons: list[Reason]
    operator: str | None
    watch: str


class OutcomeData(TypedDict):
    """The data of an outcome."""

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
    forbidden: list[str]
    checks_used: int


class Outcome(TypedDict):
    """A webhook message."""

    type: str
    version: int
    timestamp: str
    data: OutcomeData
