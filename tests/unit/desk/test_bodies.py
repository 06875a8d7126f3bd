"""What is said of a wrong body: the field and the remedy, never the value."""

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Message

from callkeeper.desk.bodies import (
    AgentTokenBody,
    AssignBody,
    Body,
    DistrustedBody,
    ResolveBody,
    VerifiedBody,
    WithdrawBody,
    read_body,
)
from callkeeper.desk.problems import Problem

OPERATOR = "1 to 64 printable ASCII characters: a core username, not a person's name"
CHOICES = "OneTimePasswordAuth, KnowledgeBasedAuth, Other"
MINTED: dict[str, object] = {"institutions": ["cu-1"]}
WRONG: list[tuple[type[Body | AgentTokenBody], object, str]] = [
    (WithdrawBody, {"what": "Smith"}, "what: must be one of assign, verified, distrusted"),
    (WithdrawBody, {"what": "Smith - at `$.y"}, "what: must be one of assign, verified, distrusted"),
    (ResolveBody, {"applied": True, "effect": "Smith"}, "effect: must be one of enroll, reject"),
    (VerifiedBody, {"person_id": "p-1", "validation_type": "Smith"}, f"validation_type: must be one of {CHOICES}"),
    (AssignBody, {"person_id": "p-1", "operatr": "x"}, "operatr: is no field of this body; did you mean operator?"),
    (
        AssignBody,
        {"person_id": "p-1", "zebra": "x"},
        "zebra: is no field of this body, which takes operator, person_id",
    ),
    (
        AssignBody,
        {"person_id": "p-1", "matching regex": "x"},
        "matching regex: is no field of this body, which takes operator, person_id",
    ),
    (
        AssignBody,
        {"person_id": " Smith"},
        "person_id: must be 1 to 128 printable characters, the first and the last no blank",
    ),
    *(
        (kind, {**body, "operator": operator}, f"operator: must be {OPERATOR}")
        for kind, body in ((AssignBody, {"person_id": "p-1"}), (AgentTokenBody, MINTED))
        for operator in ("", "  ", "J\u00f6rg", "ann\n", "a\tb", "a" * 65)
    ),
    (AssignBody, {}, "person_id: is missing"),
    (AssignBody, ["Smith"], "body: must be an object"),
    (DistrustedBody, {"reason": None}, "reason: must be a string"),
    (DistrustedBody, {"reason": ""}, "reason: must say why: not only blanks"),
    (DistrustedBody, {"reason": " \u00a0\t"}, "reason: must say why: not only blanks"),
    (DistrustedBody, {"reason": "Smith " * 100}, "reason: must be a string of at most 500 characters"),
    (
        VerifiedBody,
        {"person_id": "p-1", "validation_type": "Other", "notes": 5},
        "notes: must be a string or null",
    ),
    (ResolveBody, {"applied": "Smith"}, "applied: must be true or false"),
    (AgentTokenBody, {"institutions": "Smith"}, "institutions: must be an array"),
    (AgentTokenBody, {"institutions": []}, "institutions: must be an array of at least 1 entry"),
    (AgentTokenBody, {"institutions": ["cu-1", 5]}, "institutions[1]: must be a string"),
    (AgentTokenBody, {**MINTED, "valid_s": 59}, "valid_s: must be a whole number of at least 60"),
    (AgentTokenBody, {**MINTED, "valid_s": 3601}, "valid_s: must be a whole number of at most 3600"),
    (AgentTokenBody, {**MINTED, "valid_s": "Smith"}, "valid_s: must be a whole number"),
]


def request_with(sent: object) -> Request:
    """Return a request with a JSON body."""

    async def receive() -> Message:
        return {"type": "http.request", "body": msgspec.json.encode(sent)}

    headers = [(b"content-type", b"application/json")]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


@pytest.mark.parametrize(("kind", "body", "remedy"), WRONG)
async def test_wrong_body_is_refused_with_the_field_and_the_remedy(
    kind: type[Body | AgentTokenBody], body: object, remedy: str
) -> None:
    """A caller's programmer finds the mistake without the documentation, always in the form ``field: remedy``."""
    sent = {"operator": "ann", **body} if isinstance(body, dict) else body

    with pytest.raises(Problem) as refused:
        await read_body(request_with(sent), kind)
    assert refused.value.view.detail == remedy


async def test_person_id_of_a_candidate_can_be_named_whatever_its_letters() -> None:
    """A core system's ids may have letters of any script; the service takes them in a JSON body."""
    body = await read_body(request_with({"operator": "ann", "person_id": "Zoë-7"}), AssignBody)
    assert body.person_id == "Zoë-7"
