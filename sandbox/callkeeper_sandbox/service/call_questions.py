"""Open questions of the document about calls: their records, statuses, clocks and events."""

from datetime import timedelta

from callkeeper_sandbox.service import forms
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.faults import PUSH, Action, Fault
from callkeeper_sandbox.service.question import ask, other
from callkeeper_sandbox.service.records import NEVER, Status

_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))
_BEYOND_ASCII = "äßéñøłžαωжяשلअกあ漢字€…"

_PERSONS = ask(
    "Queue entry",
    "What is `persons` if no member has the number",
    "null",
    other("persons-empty", "An empty list.", null_persons=False),
    other("persons-late", "Candidates are matched 3 s after the start.", persons_after_s=3.0),
)
_PERSON = ask(
    "Queue entry",
    "Who is the person of a call that nobody has assigned",
    "null",
    other(
        "person-prefilled",
        "The only matched member, in the queue and in details.",
        prefills_person=frozenset({"queue", "details"}),
    ),
    other(
        "person-prefilled-in-queue",
        "The only matched member in the queue, null in details.",
        prefills_person=frozenset({"queue"}),
    ),
)
_RECORD = ask(
    "Endpoints, 5",
    "Where is the record in the answer to details",
    "in `phoneCall` and at the top level",
    other("record-nested", "In `phoneCall` only.", shows_top=False),
    other("record-at-top", "At the top level only.", shows_nested=False),
)
_DATES = ask(
    "Resources and their fields",
    "How is a date-time written",
    "in UTC with `Z`",
    other("dates-offset", "With the offset +05:30.", write_instant=forms.in_zone(5.5, is_named=True)),
    other("dates-without-zone", "In UTC, without a zone.", write_instant=forms.in_zone(0, is_named=False)),
    other("dates-local-west", "In local time, UTC-5, without a zone.", write_instant=forms.in_zone(-5, is_named=False)),
    other("dates-local-east", "In local time, UTC+1, without a zone.", write_instant=forms.in_zone(1, is_named=False)),
)
_START = ask(
    "Queue entry",
    "What does `startDateTime` say",
    "when the call started",
    other("starts-in-year-1", "0001-01-01: it is not known.", shown_start=lambda _started_at: NEVER),
    other("starts-in-future", "Ten minutes after the start.", shown_start=lambda at: at + timedelta(minutes=10)),
)
_CLOCK = ask(
    "Resources and their fields",
    "Is the service's clock right",
    "it is",
    other("clock-3-min-ahead", "3 minutes ahead.", clock_ahead_s=180.0),
    other("clock-3-min-behind", "3 minutes behind.", clock_ahead_s=-180.0),
    other("clock-5-h-ahead", "5 hours ahead.", clock_ahead_s=18000.0),
    other("clock-5-h-behind", "5 hours behind.", clock_ahead_s=-18000.0),
)
_ACTIVITIES = ask(
    "Call activity status",
    "Which other transitions are there",
    "an assign writes GrabbedCall, the end of a call CallEnded",
    other("end-keeps-status", "The end leaves the status.", end_writes_status=False),
    other("assign-keeps-status", "An assign leaves the status.", assign_writes_status=False),
    other("status-overwritten", "AgentViewed overwrites a decision after 5 s.", viewed_after_s=5.0),
    other("status-null-at-first", "Null until something happens.", starts_with_status=False),
    other(
        "enroll-ends-accepted",
        "Of an enroll's two activities AcceptCallerVoice is the last.",
        enroll_writes=(Status.FULL_AUTHENTICATION, Status.ACCEPTED),
    ),
)
_POLICIES = ask(
    "States and transitions",
    "Are a status and its policy visible at once",
    "they do",
    other("policy-before-status", "The status comes 3 s after the policy.", status_lag_s=3.0),
    other("policy-after-status", "The policy comes 3 s after the status.", policy_lag_s=3.0),
)
_UNENROLLED = ask(
    "States and transitions, row 3",
    "When does a reject un-enroll other calls of the member",
    "at once",
    other("unenrolled-later", "After 15 s.", unenroll_after_s=15.0),
    other("unenrolled-silently", "At once, without an activity.", unenroll_writes_status=False),
)
_IDS = ask(
    "Queue entry",
    "Which characters can voice ids have",
    "GUIDs in small letters",
    other("ids-visible", "Every visible character of ASCII.", id_form=lambda given: given + _VISIBLE),
    other(
        "ids-wide",
        "Blanks inside, letters and signs beyond ASCII.",
        id_form=lambda given: f"{given[:8]} {_BEYOND_ASCII} {given[8:]}",
    ),
    other("ids-capital", "GUIDs in capital letters.", id_form=str.upper),
    other("ids-numbers", "Digits.", id_form=forms.digits),
)
_SPELLING = ask(
    "Queue entry",
    "Is a GUID spelled the same everywhere",
    "it is",
    other("ids-capital-in-pushes", "In capitals in pushes.", capital_ids=frozenset({"push"})),
    other("ids-capital-in-queue", "In capitals in the queue.", capital_ids=frozenset({"queue"})),
    other("ids-capital-in-details", "In capitals in details.", capital_ids=frozenset({"details"})),
    other("ids-capital-in-assign", "In capitals in the answer to assign.", capital_ids=frozenset({"assign"})),
)
_EVENTS = ask(
    "Events",
    "How do pushes arrive",
    "once, in order, with both ids",
    other("events-doubled", "Twice.", Fault(target=PUSH, action=Action.DOUBLED)),
    other(
        "events-reversed",
        "CallEnd before CallStart.",
        Fault(target=PUSH, action=Action.REORDERED, event="CallStart"),
    ),
    other("events-alternate-id", "With the alternate id only.", Fault(target=PUSH, action=Action.ALTERNATE_ONLY)),
    other("events-lost", "Never.", Fault(target=PUSH, action=Action.LOST)),
)
_NUMBERS = ask(
    "Queue entry",
    "How is a phone number written",
    "in digits",
    other("numbers-e164", "With its country, after a plus sign.", phone_form="+1{}".format),
    other(
        "numbers-written",
        "With brackets, a blank and a dash.",
        phone_form=lambda phone: f"({phone[:3]}) {phone[3:6]}-{phone[6:]}",
    ),
)
_METADATA = ask(
    "Phone call record",
    "What is `metaData` if no policy is applied",
    "an object with an empty list",
    other("metadata-null", "Null.", metadata_form=lambda data: data if data["vendorPolicies"] else None),
    other(
        "policies-null",
        "An object with null.",
        metadata_form=lambda data: {"vendorPolicies": data["vendorPolicies"] or None},
    ),
)
_FLAGS = ask(
    "Phone call record",
    "Which flags does an enroll set",
    "those about enrolment, except behaviour",
    other("enroll-raises-none", "None.", enrolled_form=forms.enrolled_as(False)),
    other("enroll-raises-all", "All, `isVoiceVerified` too.", enrolled_form=forms.enrolled_as(True)),
)
_CASES = ask(
    "Other enumerations with states",
    "How does the status of a research case change",
    "calls have no research case",
    other(
        "case-goes-on",
        "Every call has one: NeedsReview, after 5 s InReview, after 15 s FalsePositive.",
        case_status=forms.case_that_goes_on,
    ),
    other(
        "case-archived",
        "Every call has one: NeedsReview, after the end SystemArchived.",
        case_status=lambda call, _now: "NeedsReview" if call.ended_at is None else "SystemArchived",
    ),
)
_ASSIGN_OVER = ask(
    "Rules per operation, 1",
    "What does an assign do if a person is already assigned",
    "it replaces the person",
    other("assign-over-refused", "It is refused.", assign_over="refused"),
    other("assign-over-ignored", "It succeeds and changes nothing.", assign_over="ignored"),
)
_AFTER_END = ask(
    "States and transitions, rows 2 and 3",
    "Which operations are allowed after a call has ended",
    "the same as for a live call",
    other(
        "reject-after-end-refused",
        "A reject is refused.",
        refused_after_end=frozenset({Operation.REJECT_VOICE}),
    ),
    other(
        "effects-after-end-refused",
        "Assign, enroll and reject are refused.",
        refused_after_end=frozenset({Operation.ASSIGN, Operation.ENROLL, Operation.REJECT_VOICE}),
    ),
)

CALL_QUESTIONS = (
    *(_PERSONS, _PERSON, _NUMBERS, _RECORD, _METADATA, _FLAGS, _CASES),
    *(_DATES, _START, _CLOCK),
    *(_ACTIVITIES, _POLICIES, _UNENROLLED, _ASSIGN_OVER, _AFTER_END, _IDS, _SPELLING, _EVENTS),
)
