"""Open questions of the document, each with the other answers that matter to a reseller's software.

An answer is here if callkeeper has a setting for it, notices it as a contradiction, or could break by it.
"""

from datetime import timedelta

from callkeeper_sandbox.service import forms
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institutions import InstitutionStatus
from callkeeper_sandbox.service.options import oldest_first, refuse_larger
from callkeeper_sandbox.service.question import ask, at_last, other, some, unauthorized
from callkeeper_sandbox.service.records import NEVER

QUESTIONS = (
    ask(
        "Endpoints, 8",
        "How is the list of institutions wrapped, and can it be read",
        "an object with `institutions`",
        other("list-items", "The wrapper is called `items`.", wrap_institutions=lambda records: {"items": records}),
        other("list-bare", "A bare array.", wrap_institutions=lambda records: records),
        other("list-beside-arrays", "Other arrays stand beside it.", wrap_institutions=forms.beside_arrays),
        other("list-paged", "A page without the last institution.", wrap_institutions=forms.first_page_only),
        other("list-refused", "It is refused.", Fault(target="institutions", action=Action.REFUSED)),
        other("list-failing", "500.", Fault(target="institutions", action=Action.ANSWER, status=500)),
    ),
    ask(
        "Token response",
        "Do `institutionKeys` and the institutions agree",
        "they do",
        other(
            "keys-refused",
            "The last institution cannot be read by its key; its calls can.",
            at_last(Action.REFUSED, Operation.INSTITUTION),
        ),
        other("keys-missing", "A login does not name the last institution.", token_keys=lambda keys: keys[:-1] or keys),
    ),
    ask(
        "Other enumerations with states",
        "Can the status of an institution change while it has calls",
        "no",
        other(
            "institution-to-review",
            "The last institution is in Review from its first call on.",
            status_with_calls=InstitutionStatus.REVIEW,
        ),
        other(
            "institution-disabled",
            "The last institution is Disabled from its first call on.",
            status_with_calls=InstitutionStatus.DISABLED,
        ),
    ),
    ask(
        "Authentication, rule 1",
        "What does a login do to earlier tokens",
        "nothing",
        other("login-ends-earlier", "It ends them.", login_ends_earlier=True),
    ),
    ask(
        "Queue query",
        "How large can `pageSize` be",
        "1000; more is refused",
        other("page-capped", "A page never has more than 10 entries.", page_size=lambda size: min(size, 10)),
        other("page-refused", "More than 10 is refused.", page_size=refuse_larger(10)),
        other("page-refused-100", "More than 100 is refused.", page_size=refuse_larger(100)),
    ),
    ask(
        "Queue query",
        "What does `continueFrom` count",
        "entries to skip",
        other("paging-by-page", "Pages, from 0.", page=forms.count_pages(0)),
        other("paging-by-page-from-1", "Pages, from 1; 0 is the first page too.", page=forms.count_pages(1)),
        other("paging-overlap", "Entries; a page repeats two of the page before.", page=forms.overlap),
    ),
    ask(
        "Queue query",
        "What is a page past the end",
        "empty",
        other("past-end-refused", "It is refused.", past_end=forms.refuse_past_end),
        other("past-end-repeated", "The last page again.", past_end=lambda entries, size: entries[-size:]),
    ),
    ask(
        "Queue query",
        "In which order are calls listed",
        "oldest first",
        other("queue-newest-first", "Newest first.", queue_order=lambda calls: oldest_first(calls)[::-1]),
    ),
    ask(
        "Queue query",
        "Is the queue exact about which calls are live",
        "a call is listed from its start to its end",
        other("ended-listed", "An ended call is listed for 90 s more.", listed_after_end_s=90.0),
    ),
    ask(
        "Errors, 4",
        "Which HTTP status does a refusal have",
        "200",
        other("refused-with-400", "400.", refusal_status=lambda _code: 400),
    ),
    ask(
        "Base response",
        "Which successful answers have `messages`",
        "the one to add-institution",
        other("messages-everywhere", "All of them.", success_form=forms.with_message),
    ),
    ask(
        "Versioning",
        "Can fields be added or left out",
        "no, they are those of the document",
        other("fields-added", "Every object has unknown fields.", answer_form=forms.with_unknown_fields),
        other("nulls-left-out", "Null fields are left out.", answer_form=forms.without_nulls),
    ),
    ask(
        "Authentication, rule 4",
        "What does a 401 mean, and was the request carried out",
        "the token has lapsed, and nothing was done",
        other("401-one-institution", "The last institution is always refused.", at_last(Action.UNAUTHORIZED)),
        other("401-before-acting", "One in ten, nothing done.", *unauthorized(applied=False)),
        other("401-after-acting", "One in ten, carried out.", *unauthorized(applied=True)),
    ),
    ask(
        "Limits",
        "How many requests are answered",
        "all",
        other("limit-5", "5 in a second; more get a 429.", requests_per_s=5),
        other("limit-15", "15 in a second; more get a 429.", requests_per_s=15),
        other("limit-100", "100 in a second; more get a 429.", requests_per_s=100),
        other("busy-all", "429 for one in ten.", some(Action.ANSWER, 0.1, status=429)),
        other(
            "busy-all-retry-after",
            "429 with `Retry-After: 2` for one in fifty.",
            some(Action.ANSWER, 0.02, status=429, headers={"retry-after": "2"}),
        ),
        other("busy-one", "429 for the last institution.", at_last(Action.ANSWER, status=429)),
        other(
            "busy-one-retry-after",
            "429 with `Retry-After: 60` for the last institution.",
            at_last(Action.ANSWER, status=429, headers={"retry-after": "60"}),
        ),
    ),
    ask(
        "Errors, 4",
        "Are there other HTTP statuses",
        "none",
        other("500-one-institution", "500 for the last institution.", at_last(Action.ANSWER, status=500)),
    ),
    ask(
        "Rules per operation",
        "How long does an answer take",
        "no time",
        other("slow-checks", "A check takes 4 s.", Fault(target="check", latency_s=4.0)),
    ),
    ask(
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
    ),
    ask(
        "Endpoints, 5",
        "Where is the record in the answer to details",
        "in `phoneCall` and at the top level",
        other("record-nested", "In `phoneCall` only.", shows_top=False),
    ),
    ask(
        "Resources and their fields",
        "How is a date-time written",
        "in UTC with `Z`",
        other("dates-offset", "With the offset +05:30.", write_instant=forms.in_zone(5.5, is_named=True)),
        other("dates-without-zone", "In UTC, without a zone.", write_instant=forms.in_zone(0, is_named=False)),
        other("dates-local-west", "In local time, UTC-5, no zone.", write_instant=forms.in_zone(-5, is_named=False)),
        other("dates-local-east", "In local time, UTC+1, no zone.", write_instant=forms.in_zone(1, is_named=False)),
    ),
    ask(
        "Queue entry",
        "What does `startDateTime` say",
        "when the call started",
        other("starts-in-year-1", "0001-01-01: it is not known.", shown_start=lambda _started_at: NEVER),
        other("starts-in-future", "Ten minutes after the start.", shown_start=lambda at: at + timedelta(minutes=10)),
    ),
    ask(
        "Resources and their fields",
        "Is the service's clock right",
        "it is",
        other("clock-3-min-ahead", "3 minutes ahead.", clock_ahead_s=180.0),
        other("clock-3-min-behind", "3 minutes behind.", clock_ahead_s=-180.0),
        other("clock-5-h-ahead", "5 hours ahead.", clock_ahead_s=18000.0),
        other("clock-5-h-behind", "5 hours behind.", clock_ahead_s=-18000.0),
    ),
    ask(
        "Call activity status",
        "Which other transitions are there",
        "an assign writes GrabbedCall, the end of a call CallEnded",
        other("end-keeps-status", "The end leaves the status.", end_writes_status=False),
    ),
    ask(
        "States and transitions",
        "Are a status and its policy visible at once",
        "they do",
        other("policy-before-status", "The status comes 3 s after the policy.", status_lag_s=3.0),
    ),
    ask(
        "States and transitions, row 3",
        "When does a reject un-enroll other calls of the member",
        "at once",
        other("unenrolled-silently", "At once, without an activity.", unenroll_writes_status=False),
    ),
    ask(
        "Rules per operation, 1",
        "What does an assign do if a person is already assigned",
        "it replaces the person",
        other("assign-over-refused", "It is refused.", assign_over="refused"),
        other("assign-over-ignored", "It succeeds and changes nothing.", assign_over="ignored"),
    ),
    ask(
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
    ),
    ask(
        "Queue entry",
        "Which characters can voice ids have",
        "GUIDs in small letters",
        other("ids-capital", "GUIDs in capital letters.", id_form=str.upper),
    ),
)
