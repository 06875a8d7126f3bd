"""What is said of a wrong body: the field and the remedy, never the value."""

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Message

from callkeeper.desk.bodies import AssignBody, Body, ResolveBody, VerifiedBody, WithdrawBody, read_body
from callkeeper.desk.problems import Problem

WRONG: list[tuple[type[Body], dict[str, object], str]] = [
    (WithdrawBody, {"what": "Smith"}, "$.what must be one of assign, verified, distrusted"),
    (WithdrawBody, {"what": "Smith - at `$.y"}, "$.what must be one of assign, verified, distrusted"),
    (ResolveBody, {"applied": True, "effect": "Smith"}, "$.effect must be one of enroll, reject"),
    (
        VerifiedBody,
        {"person_id": "p-1", "validation_type": "Smith"},
        "$.validation_type must be one of OneTimePasswordAuth, KnowledgeBasedAuth, Other",
    ),
    (AssignBody, {"person_id": "p-1", "operatr": "x"}, "`operatr`; did you mean operator?"),
    (AssignBody, {"person_id": "p-1", "zebra": "x"}, "`zebra`; the fields are operator, person_id"),
    (AssignBody, {"person_id": "p-1", "matching regex": "x"}, "the fields are operator, person_id"),
    (AssignBody, {"person_id": " Smith"}, "$.person_id must be 1 to 128 printable ASCII characters"),
    (AssignBody, {"person_id": "p-1", "operator": "Ann Smith"}, "$.operator must be 1 to 64 visible ASCII characters"),
]


@pytest.mark.parametrize(("kind", "body", "remedy"), WRONG)
async def test_wrong_body_is_refused_with_the_field_and_the_remedy(
    kind: type[Body], body: dict[str, object], remedy: str
) -> None:
    """A caller's programmer finds the mistake without the documentation."""

    async def receive() -> Message:
        return {"type": "http.request", "body": msgspec.json.encode({"operator": "ann", **body})}

    headers = [(b"content-type", b"application/json")]
    with pytest.raises(Problem) as refused:
        await read_body(Request({"type": "http", "method": "POST", "headers": headers}, receive), kind)
    detail = refused.value.view.detail or ""
    assert remedy in detail
    assert "Smith" not in detail
