"""Open questions of the document about institutions and logins."""

from callkeeper_sandbox.service import forms
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institutions import InstitutionStatus
from callkeeper_sandbox.service.question import ask, at_last, other
from callkeeper_sandbox.service.records import NEVER

UNKNOWN_KEY = "unknown-1"
"""A key in the login's answer that every other operation refuses."""

_LIST = ask(
    "Endpoints, 8",
    "How is the list of institutions wrapped, and can it be read",
    "an object with `institutions`",
    other("list-items", "The wrapper is called `items`.", wrap_institutions=forms.wrapped_in("items")),
    other("list-nested", "The list is two objects deep.", wrap_institutions=forms.wrapped_in("data", "institutions")),
    other("list-bare", "A bare array.", wrap_institutions=lambda records: records),
    other("list-beside-arrays", "Other arrays stand beside it.", wrap_institutions=forms.beside_arrays),
    other("list-paged", "A page without the last institution.", wrap_institutions=forms.first_page_only),
    other("list-refused", "It is refused.", Fault(target="institutions", action=Action.REFUSED)),
    other("list-failing", "500.", Fault(target="institutions", action=Action.ANSWER, status=500)),
)
_KEYS = ask(
    "Token response",
    "Do `institutionKeys` and the institutions agree",
    "they do",
    other(
        "keys-unknown",
        f"A login also names `{UNKNOWN_KEY}`, which every other operation refuses.",
        token_keys=lambda keys: [UNKNOWN_KEY, *keys],
    ),
    other(
        "keys-refused",
        "The last institution cannot be read by its key; its calls can.",
        at_last(Action.REFUSED, Operation.INSTITUTION),
    ),
    other("keys-missing", "A login does not name the last institution.", token_keys=lambda keys: keys[:-1] or keys),
)
_INSTITUTION = ask(
    "Other shapes",
    "What are contacts, voiceConfig, billingConfig and classification",
    "empty lists, null and `Standard`",
    other("institution-odd", "Numbers, lists, objects in objects.", institution_form=forms.odd_institution),
    other(
        "institution-sparse", "What can be null is null, texts are empty.", institution_form=forms.sparse_institution
    ),
)
_PROBLEM = ask(
    "Errors, 3",
    "Which fields does the 400 problem body have",
    "the usual ones",
    other("problem-empty", "None.", problem_form=lambda _problem: {}),
    other("problem-errors-only", "A list of messages.", problem_form=lambda problem: {"errors": [problem["detail"]]}),
)
_ADDITION = ask(
    "Endpoints, 9",
    "Which fields does a new institution have",
    "`name`; the key can be left out",
    other("addition-needs-key", "The key is required.", addition_needs_key=True),
    other("addition-makes-key", "A given key is ignored.", addition_takes_key=False),
)
_LOGIN = ask(
    "Authentication, rule 1",
    "What does a login do to earlier tokens",
    "nothing",
    other("login-ends-earlier", "It ends them.", login_ends_earlier=True),
    other("login-keeps-token", "It returns the valid one.", login_keeps_token=True),
)
_CREDENTIALS = ask(
    "Authentication, rule 1",
    "How are wrong credentials refused",
    "by `success` false",
    other("login-refused-401", "By HTTP 401.", login_refusal_status=401),
    other("login-refused-400", "By HTTP 400.", login_refusal_status=400),
    other("login-refused-500", "By HTTP 500.", login_refusal_status=500),
)
_INSTITUTION_STATUS = ask(
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
)
_VPN = ask(
    "Other enumerations with states",
    "Which VPN statuses does an active institution have",
    "ConnectionSuccessful",
    other(
        "vpn-goes-back",
        "Pending and Configured.",
        vpn_form=lambda config: config and {**config, "confirmStatus": "Pending", "institutionStatus": "Configured"},
    ),
    other("vpn-none", "It has no VPN config.", vpn_form=lambda _config: None),
)
_UPDATE = ask(
    "Endpoints, 11",
    "What does a null name do",
    "it leaves the name",
    other("update-clears", "It clears the name.", update_null=lambda _name: None),
    other("update-makes-empty", "It makes the name an empty text.", update_null=lambda _name: ""),
)
_LOGIN_AS = ask(
    "Endpoints, 12",
    "Does login-as have a base response and actions",
    "both",
    other(
        "login-as-bare",
        "No base response.",
        login_as_form=lambda answer: {name: answer[name] for name in ("token", "actions")},
    ),
    other("login-as-without-actions", "No actions.", login_as_form=lambda answer: {**answer, "actions": []}),
)
_EXPIRY = ask(
    "Token response",
    "What does `expiresOn` say",
    "30 minutes after the login",
    other("expires-at-login", "The time of the login.", expires_on=lambda at: at),
    other("expires-in-year-1", "0001-01-01: it is not known.", expires_on=lambda _at: NEVER),
)

INSTITUTION_QUESTIONS = (
    *(_LIST, _KEYS, _INSTITUTION, _INSTITUTION_STATUS, _VPN, _ADDITION, _PROBLEM, _UPDATE, _LOGIN_AS),
    *(_LOGIN, _CREDENTIALS, _EXPIRY),
)
