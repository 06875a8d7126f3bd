"""Assign: which call it means, what it answers, what it writes."""

import pytest

from callkeeper_sandbox.service.state import Happening, Kind
from tests.sandbox_fixtures import PHONE, Asgi


async def test_assign_by_voice_id_records_claim_person_and_alias(sandbox_asgi: Asgi) -> None:
    """The call gets the person and the operator, and the account alias goes to the provider.

    Spec: Rules per operation 1; What the service does.
    """
    call = sandbox_asgi.call()
    answer = await sandbox_asgi.ask("POST", "/calls/assign", {"voiceId": call.voice_id, "personId": "p-1"})
    assert (answer["success"], answer["voiceId"]) == (True, call.voice_id)
    assert (call.person_id, call.core_username, call.aliases) == ("p-1", "bot", ["cu-1-p-1"])
    assert call.status == "GrabbedCall"


async def test_assign_prefers_the_phone_number(sandbox_asgi: Asgi) -> None:
    """With both given, the phone number decides and the voice id is ignored.

    Spec: Rules per operation 1.
    """
    meant, other = sandbox_asgi.call(), sandbox_asgi.call(phone_number="5550100002")
    body = {"phoneNumber": PHONE, "voiceId": other.voice_id, "personId": "p-1"}
    answer = await sandbox_asgi.ask("POST", "/calls/assign", body)
    assert (answer["voiceId"], meant.person_id, other.person_id) == (meant.voice_id, "p-1", None)


async def test_assign_by_phone_number_means_the_latest_live_call(sandbox_asgi: Asgi) -> None:
    """Of several calls from a number the latest that lives is meant.

    Spec: Rules per operation 1.
    """
    sandbox_asgi.call()
    sandbox_asgi.advance(1)
    meant = sandbox_asgi.call()
    sandbox_asgi.advance(1)
    sandbox_asgi.call(Happening(Kind.END, 1))
    sandbox_asgi.advance(1)
    answer = await sandbox_asgi.ask("POST", "/calls/assign", {"phoneNumber": PHONE, "personId": "p-1"})
    assert answer["voiceId"] == meant.voice_id


async def test_assign_resolves_an_alternate_id_and_answers_the_real_one(sandbox_asgi: Asgi) -> None:
    """An alternate id is resolved; the answer carries the id to use from then on.

    Spec: Rules per operation 1; What the service does.
    """
    call = sandbox_asgi.call()
    answer = await sandbox_asgi.ask("POST", "/calls/assign", {"voiceId": call.alternate_id, "personId": "p-1"})
    assert answer["voiceId"] == call.voice_id


@pytest.mark.parametrize("body", [{}, {"phoneNumber": None, "voiceId": None}, {"phoneNumber": "", "voiceId": ""}])
async def test_assign_without_number_or_id_is_refused(sandbox_asgi: Asgi, body: dict[str, str | None]) -> None:
    """Neither given: ``success`` false, with an error that says that one must be provided.

    Spec: Rules per operation 1; Errors 1.
    """
    answer = await sandbox_asgi.ask("POST", "/calls/assign", {**body, "personId": "p-1"})
    assert (answer["success"], answer["error"]) == (False, "A phone number or voice id must be provided.")


@pytest.mark.parametrize("body", [{"phoneNumber": "1"}, {"voiceId": "1"}])
async def test_assign_of_an_unknown_call_is_refused(sandbox_asgi: Asgi, body: dict[str, str]) -> None:
    """An id or a number that no call has is refused.

    Spec: Errors 1.
    """
    answer = await sandbox_asgi.ask("POST", "/calls/assign", {**body, "personId": "p-1"})
    assert (answer["success"], answer["error"]) == (False, "Phone call not found.")


async def test_assign_without_a_person_is_refused(sandbox_asgi: Asgi) -> None:
    """``personId`` is required.

    Spec: Endpoints 4.
    """
    answer = await sandbox_asgi.ask("POST", "/calls/assign", {"voiceId": sandbox_asgi.call().voice_id})
    assert answer["success"] is False


async def test_assign_by_phone_number_counts_for_its_call(sandbox_asgi: Asgi) -> None:
    """The ledger files an assign by number under the call that it meant.

    Spec: Rules per operation 1.
    """
    call = sandbox_asgi.call()
    await sandbox_asgi.ask("POST", "/calls/assign", {"phoneNumber": PHONE, "personId": "p-1"})
    assert sandbox_asgi.sandbox.ledger.tally(call.voice_id).applied == {"assign": 1}
