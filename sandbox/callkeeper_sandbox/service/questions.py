"""Open questions of the document: those about requests and the queue, and the list of all."""

from callkeeper_sandbox.service import forms
from callkeeper_sandbox.service.answers import JSON
from callkeeper_sandbox.service.call_questions import CALL_QUESTIONS
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institution_questions import INSTITUTION_QUESTIONS
from callkeeper_sandbox.service.options import oldest_first, refuse_larger
from callkeeper_sandbox.service.question import ask, at_last, other, some, unauthorized

_PAGE_SIZE = ask(
    "Queue query",
    "How large can `pageSize` be",
    "1000; more is refused",
    other("page-capped", "A page never has more than 10 entries.", page_size=lambda size: min(size, 10)),
    other("page-refused", "More than 10 is refused.", page_size=refuse_larger(10)),
    other("page-refused-100", "More than 100 is refused.", page_size=refuse_larger(100)),
)
_PAGING = ask(
    "Queue query",
    "What does `continueFrom` count",
    "entries to skip",
    other("paging-by-page", "Pages, from 0.", page=forms.count_pages(0)),
    other("paging-by-page-from-1", "Pages, from 1; 0 is the first page too.", page=forms.count_pages(1)),
    other("paging-overlap", "Entries; a page repeats two of the page before.", page=forms.overlap),
)
_PAST_END = ask(
    "Queue query",
    "What is a page past the end",
    "empty",
    other("past-end-refused", "It is refused.", past_end=forms.refuse_past_end),
    other("past-end-repeated", "The last page again.", past_end=lambda entries, size: entries[-size:]),
)
_ORDER = ask(
    "Queue query",
    "In which order are calls listed",
    "oldest first",
    other("queue-newest-first", "Newest first.", queue_order=lambda calls: oldest_first(calls)[::-1]),
    other(
        "queue-by-number",
        "By phone number.",
        queue_order=lambda calls: sorted(oldest_first(calls), key=lambda call: call.phone_number),
    ),
)
_LIVE = ask(
    "Queue query",
    "Is the queue exact about which calls are live",
    "a call is listed from its start to its end",
    other("ended-listed", "An ended call is listed for 90 s more.", listed_after_end_s=90.0),
    other("assigned-not-listed", "A call whose person is known is not listed.", lists_assigned=False),
)
_BOUNDS = ask(
    "Queue query",
    "Are the bounds of the start inclusive",
    "they are",
    other("bounds-exclusive", "They are exclusive.", bounds_are_exclusive=True),
    other(
        "bounds-by-minute", "Whole minutes are compared.", compared_start=lambda at: at.replace(second=0, microsecond=0)
    ),
)
_CONTENT_TYPE = ask(
    "Endpoints",
    "What is the answer to a content type other than JSON",
    "nothing",
    other("content-type-enforced", "415, also without a body for another type.", accepts_type=forms.json_if_any),
    other(
        "content-type-exact",
        "415 if it is not exactly JSON, or named without a body.",
        accepts_type=lambda content_type, has_body: content_type == (JSON if has_body else ""),
    ),
)
_STATUS_OF_REFUSALS = ask(
    "Errors, 4",
    "Which HTTP status does a refusal have",
    "200",
    other("refused-with-400", "400.", refusal_status=lambda _code: 400),
    other(
        "not-found-with-404",
        "404 for what is not found, else 400.",
        refusal_status=lambda code: 404 if code.endswith("NotFound") else 400,
    ),
)
_MESSAGE = ask(
    "Base response",
    "Where is the message of a refusal, and is there a `code`",
    "in `error` and `errors`, with a code",
    other("refusal-in-error", "In `error`, without a code.", refusal_form=forms.message_in("error")),
    other("refusal-in-errors", "In `errors`, without a code.", refusal_form=forms.message_in("errors")),
)
_SUCCESS = ask(
    "Base response",
    "Which successful answers have `messages`",
    "the one to add-institution",
    other("messages-everywhere", "All of them.", success_form=forms.with_message),
    other("base-empty", "All have empty texts and lists.", success_form=forms.with_empty_base),
)
_FIELDS = ask(
    "Versioning",
    "Can fields be added or left out",
    "no, they are those of the document",
    other("fields-added", "Every object has unknown fields.", answer_form=forms.with_unknown_fields),
    other("nulls-left-out", "Null fields are left out.", answer_form=forms.without_nulls),
)
_UNAUTHORIZED = ask(
    "Authentication, rule 4",
    "What does a 401 mean, and was the request carried out",
    "the token has lapsed, and nothing was done",
    other("401-one-institution", "The last institution is always refused.", at_last(Action.UNAUTHORIZED)),
    other("401-before-acting", "One in ten, nothing done.", *unauthorized(applied=False)),
    other("401-after-acting", "One in ten, carried out.", *unauthorized(applied=True)),
)
_LIMIT = ask(
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
)
_FAILURES = ask(
    "Errors, 4",
    "Are there other HTTP statuses",
    "none",
    other("500-one-institution", "500 for the last institution.", at_last(Action.ANSWER, status=500)),
    other("503-one-institution", "503 for the last institution.", at_last(Action.ANSWER, status=503)),
)
_LATENCY = ask(
    "Rules per operation",
    "How long does an answer take",
    "no time",
    other("slow-checks", "A check takes 4 s.", Fault(target="check", latency_s=4.0)),
    other("slow-one-institution", "4 s for the last institution.", at_last(Action.PASS, latency_s=4.0)),
)

QUESTIONS = (
    *INSTITUTION_QUESTIONS,
    *(_PAGE_SIZE, _PAGING, _PAST_END, _ORDER, _LIVE, _BOUNDS),
    *(_CONTENT_TYPE, _STATUS_OF_REFUSALS, _MESSAGE, _SUCCESS, _FIELDS),
    *(_UNAUTHORIZED, _LIMIT, _FAILURES, _LATENCY),
    *CALL_QUESTIONS,
)
