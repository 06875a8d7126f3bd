"""What the document leaves open: each question with its heading, the usual answer, and the other answers (variants)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox import forms
from sandbox.access import Operation
from sandbox.faults import PUSH, Action, Fault
from sandbox.options import Options, refuse_larger

THE_LAST = "*last*"
"""Stands in a fault for the key of the reseller's last institution: the one that is in trouble."""

UNKNOWN_KEY = "unknown-1"
"""A key that a login names and that every other operation refuses."""


@dataclass(frozen=True)
class Variant:
    """One answer: the fields of `Options` that it sets, and the faults that it brings."""

    name: str
    answer: str
    options: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Question:
    """What the document leaves open, and all answers to it."""

    heading: str
    question: str
    usual: str
    variants: tuple[Variant, ...]


def _other(name: str, answer: str, *faults: Fault, **options: Any) -> Variant:
    assert set(options) <= set(Options.__dataclass_fields__)  # noqa: S101  (a misspelt field would change nothing)
    return Variant(name, answer, options, faults)


def _ask(heading: str, question: str, usual: str, *variants: Variant) -> Question:
    return Question(heading, question, usual, variants)


def _at_last(action: Action, target: str = "*", **more: Any) -> Fault:
    return Fault(target=target, action=action, institution_key=THE_LAST, **more)


def _some(action: Action, share: float, **more: Any) -> Fault:
    return Fault(target="*", action=action, share=share, seed=7, **more)


def _unauthorized(*, applied: bool) -> list[Fault]:
    """Refuse some requests of every operation but the login, which uses no token."""
    operations = [operation for operation in Operation if operation is not Operation.TOKEN]
    return [
        Fault(target=operation, action=Action.UNAUTHORIZED, applied=applied, share=0.1, seed=7)
        for operation in operations
    ]


_LIST = _ask(
    "Endpoints, 8",
    "How is the list of institutions wrapped, and can it be read",
    "an object with `institutions`",
    _other("list-items", "The wrapper is called `items`.", wrap_institutions=forms.wrapped_in("items")),
    _other("list-nested", "The list is two objects deep.", wrap_institutions=forms.wrapped_in("data", "institutions")),
    _other("list-bare", "A bare array.", wrap_institutions=lambda records: records),
    _other("list-beside-arrays", "Other arrays stand beside it.", wrap_institutions=forms.beside_arrays),
    _other("list-paged", "A page without the last institution.", wrap_institutions=forms.first_page_only),
    _other("list-refused", "It is refused.", Fault(target="institutions", action=Action.REFUSED)),
    _other("list-failing", "500.", Fault(target="institutions", action=Action.ANSWER, status=500)),
)
_KEYS = _ask(
    "Token response",
    "Do `institutionKeys` and the institutions agree",
    "they do",
    _other(
        "keys-unknown",
        f"A login also names `{UNKNOWN_KEY}`, which every other operation refuses.",
        token_keys=lambda keys: [UNKNOWN_KEY, *keys],
    ),
    _other(
        "keys-refused",
        "The last institution cannot be read by its key; its calls can.",
        _at_last(Action.REFUSED, Operation.INSTITUTION),
    ),
    _other("keys-missing", "A login does not name the last institution.", token_keys=forms.all_but_last),
)
_INSTITUTION = _ask(
    "Other shapes",
    "What are contacts, voiceConfig, billingConfig and classification",
    "empty lists, null and `Standard`",
    _other("institution-odd", "Numbers, lists, objects in objects.", institution_form=forms.odd_institution),
)
_PAGE_SIZE = _ask(
    "Queue query",
    "How large can `pageSize` be",
    "1000; more is refused",
    _other("page-capped", "A page never has more than 10 entries.", page_size=forms.cut_to(10)),
    _other("page-refused", "More than 10 is refused.", page_size=refuse_larger(10)),
    _other("page-refused-100", "More than 100 is refused.", page_size=refuse_larger(100)),
)
_PAGING = _ask(
    "Queue query",
    "What does `continueFrom` count",
    "entries to skip",
    _other("paging-by-page", "Pages, from 0.", page=forms.count_pages(0)),
    _other("paging-by-page-from-1", "Pages, from 1; 0 is the first page too.", page=forms.count_pages(1)),
    _other("paging-overlap", "Entries; a page repeats two of the page before.", page=forms.overlap),
)
_PAST_END = _ask(
    "Queue query",
    "What is a page past the end",
    "empty",
    _other("past-end-refused", "It is refused.", past_end=forms.refuse_past_end),
    _other("past-end-repeated", "The last page again.", past_end=forms.repeat_last_page),
)
_ORDER = _ask(
    "Queue query",
    "In which order are calls listed",
    "oldest first",
    _other("queue-newest-first", "Newest first.", newest_first=True),
)
_LIVE = _ask(
    "Queue query",
    "Is the queue exact about which calls are live",
    "a call is listed from its start to its end",
    _other("ended-listed", "An ended call is listed for 90 s more.", listed_after_end_s=90.0),
    _other("assigned-not-listed", "A call whose person is known is not listed.", lists_assigned=False),
)
_BOUNDS = _ask(
    "Queue query",
    "Are the bounds of the start inclusive",
    "they are",
    _other("bounds-exclusive", "They are exclusive.", bounds_are_exclusive=True),
)
_PERSONS = _ask(
    "Queue entry",
    "What is `persons` of a number that no member has",
    "null",
    _other("persons-empty", "An empty list.", null_persons=False),
)
_CONTENT_TYPE = _ask(
    "Endpoints",
    "What does a content type other than JSON lead to",
    "nothing",
    _other("content-type-enforced", "415, without a body too if another type is named.", needs_json=True),
)
_STATUS_OF_REFUSALS = _ask(
    "Errors, 4",
    "Which HTTP status has a refusal",
    "200",
    _other("refused-with-400", "400.", refusal_status=forms.always_400),
    _other("not-found-with-404", "404 for what is not found, else 400.", refusal_status=forms.not_found_404),
)
_MESSAGE = _ask(
    "Base response",
    "Where is the message of a refusal, and is there a `code`",
    "in `error` and `errors`, with a code",
    _other("refusal-in-error", "In `error`, without a code.", refusal_form=forms.message_in("error")),
    _other("refusal-in-errors", "In `errors`, without a code.", refusal_form=forms.message_in("errors")),
)
_SUCCESS = _ask(
    "Base response",
    "Which answers that succeed carry `messages`",
    "that to an added institution",
    _other("messages-everywhere", "All of them.", success_form=forms.with_message),
)
_PROBLEM = _ask(
    "Errors, 3",
    "Which fields has the 400 problem body",
    "the usual ones",
    _other("problem-empty", "None.", problem_form=lambda _problem: {}),
)
_RECORD = _ask(
    "Endpoints, 5",
    "Where do details carry the record",
    "in `phoneCall` and at the top level",
    _other("record-nested", "In `phoneCall` only.", shows_top=False),
    _other("record-at-top", "At the top level only.", shows_nested=False),
)
_FIELDS = _ask(
    "Versioning",
    "Can fields come or go",
    "they are those of the document",
    _other("fields-added", "Every object has fields that nobody knows.", answer_form=forms.with_unknown_fields),
    _other("nulls-left-out", "What is null is left out.", answer_form=forms.without_nulls),
)
_UNAUTHORIZED = _ask(
    "Authentication, rule 4",
    "What is a 401 about, and was something done",
    "the token has lapsed, and nothing was done",
    _other("401-one-institution", "The last institution is always refused.", _at_last(Action.UNAUTHORIZED)),
    _other("401-before-acting", "One in ten, nothing done.", *_unauthorized(applied=False)),
    _other("401-after-acting", "One in ten, carried out.", *_unauthorized(applied=True)),
)
_LOGIN = _ask(
    "Authentication, rule 1",
    "What does a login do to earlier tokens",
    "nothing",
    _other("login-ends-earlier", "It ends them.", login_ends_earlier=True),
)
_CREDENTIALS = _ask(
    "Authentication, rule 1",
    "How are wrong credentials refused",
    "by `success` false",
    _other("login-refused-401", "By HTTP 401.", login_refusal_status=401),
)
_LIMIT = _ask(
    "Limits",
    "How many requests are answered",
    "all",
    _other("limit-5", "5 in a second; more get a 429.", requests_per_s=5),
    _other("limit-15", "15 in a second; more get a 429.", requests_per_s=15),
    _other("limit-100", "100 in a second; more get a 429.", requests_per_s=100),
    _other("busy-all", "429 for one in ten.", _some(Action.ANSWER, 0.1, status=429)),
    _other(
        "busy-all-retry-after",
        "429 with `Retry-After: 2` for one in fifty.",
        _some(Action.ANSWER, 0.02, status=429, headers={"retry-after": "2"}),
    ),
    _other("busy-one", "429 for the last institution.", _at_last(Action.ANSWER, status=429)),
    _other(
        "busy-one-retry-after",
        "429 with `Retry-After: 60` for the last institution.",
        _at_last(Action.ANSWER, status=429, headers={"retry-after": "60"}),
    ),
)
_FAILURES = _ask(
    "Errors, 4",
    "Are there other HTTP statuses",
    "none",
    _other("500-one-institution", "500 for the last institution.", _at_last(Action.ANSWER, status=500)),
    _other("503-one-institution", "503 for the last institution.", _at_last(Action.ANSWER, status=503)),
)
_LATENCY = _ask(
    "Rules per operation",
    "How long does an answer take",
    "no time",
    _other("slow-checks", "A check takes 4 s.", Fault(target="check", latency_s=4.0)),
    _other("slow-one-institution", "4 s for the last institution.", _at_last(Action.PASS, latency_s=4.0)),
)
_DATES = _ask(
    "Resources and their fields",
    "How is a date-time written",
    "in UTC with `Z`",
    _other("dates-offset", "With the offset +05:30.", write_instant=forms.in_zone(5.5, is_named=True)),
    _other("dates-without-zone", "In UTC, without a zone.", write_instant=forms.in_zone(0, is_named=False)),
    _other(
        "dates-local-west", "In local time, UTC-5, without a zone.", write_instant=forms.in_zone(-5, is_named=False)
    ),
    _other("dates-local-east", "In local time, UTC+1, without a zone.", write_instant=forms.in_zone(1, is_named=False)),
)
_START = _ask(
    "Queue entry",
    "What does `startDateTime` say",
    "when the call started",
    _other("starts-in-year-1", "0001-01-01: it is not known.", shown_start=forms.year_one),
    _other("starts-in-future", "Ten minutes after the start.", shown_start=forms.in_ten_minutes),
)
_CLOCK = _ask(
    "Resources and their fields",
    "Is the service's clock right",
    "it is",
    _other("clock-3-min-ahead", "3 minutes ahead.", clock_ahead_s=180.0),
    _other("clock-3-min-behind", "3 minutes behind.", clock_ahead_s=-180.0),
    _other("clock-5-h-ahead", "5 hours ahead.", clock_ahead_s=18000.0),
    _other("clock-5-h-behind", "5 hours behind.", clock_ahead_s=-18000.0),
)
_ACTIVITIES = _ask(
    "Call activity status",
    "Which other transitions are there",
    "an assign writes GrabbedCall, the end of a call CallEnded",
    _other("end-keeps-status", "The end leaves the status.", end_writes_status=False),
    _other("assign-keeps-status", "An assign leaves the status.", assign_writes_status=False),
    _other("status-overwritten", "AgentViewed overwrites a decision after 5 s.", viewed_after_s=5.0),
)
_POLICIES = _ask(
    "States and transitions",
    "Do a status and its policy show at once",
    "they do",
    _other("policy-before-status", "The status comes 3 s after the policy.", status_lag_s=3.0),
    _other("policy-after-status", "The policy comes 3 s after the status.", policy_lag_s=3.0),
)
_UNENROLLED = _ask(
    "States and transitions, row 3",
    "When does a reject un-enroll other calls of the member",
    "at once",
    _other("unenrolled-later", "After 15 s.", unenroll_after_s=15.0),
)
_IDS = _ask(
    "Queue entry",
    "Which alphabet have voice ids",
    "GUIDs in small letters",
    _other("ids-visible", "Every visible character of ASCII.", id_form=forms.visible_id),
    _other("ids-wide", "Blanks inside, letters and signs beyond ASCII.", id_form=forms.wide_id),
    _other("ids-capital", "GUIDs in capital letters.", id_form=forms.upper_guid),
    _other("ids-numbers", "Digits.", id_form=forms.digits),
)
_EVENTS = _ask(
    "Events",
    "How do pushes arrive",
    "once, in order, with both ids",
    _other("events-doubled", "Twice.", Fault(target=PUSH, action=Action.DOUBLED)),
    _other(
        "events-reversed",
        "CallEnd before CallStart.",
        Fault(target=PUSH, action=Action.REORDERED, event="CallStart"),
    ),
    _other("events-alternate-id", "With the alternate id only.", Fault(target=PUSH, action=Action.ALTERNATE_ONLY)),
    _other("events-lost", "Never.", Fault(target=PUSH, action=Action.LOST)),
)
_ADDITION = _ask(
    "Endpoints, 9",
    "Which fields has an institution that is added",
    "`name`; the key can be left out",
    _other("addition-needs-key", "The key is required.", addition_needs_key=True),
)

QUESTIONS = (
    *(_LIST, _KEYS, _INSTITUTION, _ADDITION, _PROBLEM),
    *(_PAGE_SIZE, _PAGING, _PAST_END, _ORDER, _LIVE, _BOUNDS, _PERSONS),
    *(_CONTENT_TYPE, _STATUS_OF_REFUSALS, _MESSAGE, _SUCCESS, _FIELDS, _RECORD),
    *(_UNAUTHORIZED, _LOGIN, _CREDENTIALS, _LIMIT, _FAILURES, _LATENCY),
    *(_DATES, _START, _CLOCK),
    *(_ACTIVITIES, _POLICIES, _UNENROLLED, _IDS, _EVENTS),
)
