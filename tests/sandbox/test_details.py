"""Details: the record, when the provider is asked, and what stops that."""

import pytest

from callkeeper_sandbox.service.effects import happen_now
from callkeeper_sandbox.service.records import PhoneCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.sandbox_fixtures import Asgi

RECORD = set(PhoneCall.__struct_encode_fields__)
BASE = {"success", "error", "errors", "messages", "code"}


async def test_details_carries_the_record_in_both_places(sandbox_asgi: Asgi) -> None:
    """The record is in ``phoneCall`` and its fields at the top level too.

    Spec: Endpoints 5; Phone call record.
    """
    answer = await sandbox_asgi.details(sandbox_asgi.call().voice_id)
    assert set(answer) == BASE | RECORD | {"phoneCall"}
    assert answer["phoneCall"] == {name: answer[name] for name in RECORD}


async def test_details_shape_can_be_chosen(sandbox_asgi: Asgi) -> None:
    """The record can be shown in ``phoneCall`` alone.

    Spec: Endpoints 5.
    """
    sandbox_asgi.sandbox.choose(["record-nested"])
    answer = await sandbox_asgi.details(sandbox_asgi.call().voice_id)
    assert ("status" in answer, answer["phoneCall"] is not None) == (False, True)


async def test_record_has_the_fields_of_the_document(sandbox_asgi: Asgi) -> None:
    """The record's names are the document's, copied here by hand.

    Spec: Phone call record; Resources and their fields.
    """
    names = """phoneCallId phoneNumber voiceId personId isVerified isEnrolled isAccountEnrolled isVoiceEnrolled
        isBehaviorEnrolled isDeviceEnrolled successfulVoiceEnrollment isVoiceVerified isVoiceMismatch isHighRiskDevice
        verifiedDateTimeUtc notes coreUsername createdDateUtc updatedDateUtc status metaData voiceAuthenticationError
        callEnded callDuration valueForCore validationRuleId validationRuleName verificationQuestions
        hasVoiceMatchValidationRule firstName lastName researchCase vendorEvents"""
    assert set(names.split()) == RECORD
    record = (await sandbox_asgi.details(sandbox_asgi.call().voice_id))["phoneCall"]
    assert record["metaData"] == {"vendorPolicies": []}
    assert (record["status"], record["callEnded"]) == ("CallStarted", False)


@pytest.mark.parametrize("check", [False, True])
async def test_details_resolves_an_alternate_id(sandbox_asgi: Asgi, check: bool) -> None:
    """Details answers for either id with the real one.

    Spec: Rules per operation 2; What the service does.
    """
    call = sandbox_asgi.call()
    answer = await sandbox_asgi.details(call.alternate_id, check=check)
    assert answer["voiceId"] == call.voice_id


async def test_details_of_an_unknown_call_is_refused(sandbox_asgi: Asgi) -> None:
    """An unknown id and another institution's call are not found.

    Spec: Errors 1.
    """
    sandbox_asgi.world.add_institution("cu-2")
    foreign = sandbox_asgi.call(key="cu-2")
    for voice_id in ("unknown", foreign.voice_id):
        answer = await sandbox_asgi.details(voice_id)
        assert (answer["success"], answer["error"]) == (False, "Phone call not found.")


@pytest.mark.parametrize("query", [{}, {"checkVoiceAuthentication": "perhaps"}], ids=["absent", "malformed"])
async def test_details_requires_the_check_parameter(sandbox_asgi: Asgi, query: dict[str, str]) -> None:
    """``checkVoiceAuthentication`` is a required boolean.

    Spec: Endpoints 5.
    """
    answer = await sandbox_asgi.ask("GET", f"/calls/{sandbox_asgi.call().voice_id}/details", **query)
    assert answer["success"] is False


async def test_read_never_queries_the_provider(sandbox_asgi: Asgi) -> None:
    """With ``false`` a green result at the provider changes nothing: no status, no policy, no check used.

    Spec: Rules per operation 2.
    """
    call = sandbox_asgi.call(Happening(Kind.GREEN, 0))
    sandbox_asgi.advance(1)
    before = await sandbox_asgi.details(call.voice_id)
    assert await sandbox_asgi.details(call.voice_id) == before
    assert (before["status"], before["metaData"], call.checks_used) == ("CallStarted", {"vendorPolicies": []}, 0)


async def test_check_with_a_green_policy_authenticates(sandbox_asgi: Asgi) -> None:
    """A green policy writes FullAuthentication, marks the call voice-validated and records a VoiceAuth verification.

    Spec: States and transitions, row 1.
    """
    call = sandbox_asgi.call(Happening(Kind.GREEN, 5))
    await sandbox_asgi.ask("POST", "/calls/assign", {"voiceId": call.voice_id, "personId": "p-1"})
    early = await sandbox_asgi.details(call.voice_id, check=True)
    sandbox_asgi.advance(5)
    late = await sandbox_asgi.details(call.voice_id, check=True)
    assert (early["status"], late["status"]) == ("CheckRiskAndAuthentication", "FullAuthentication")
    assert late["metaData"]["vendorPolicies"] == ["Green Voice Authentication"]
    assert (late["isVoiceVerified"], late["isVerified"]) == (True, True)
    assert [(check.validation_type, check.person_id) for check in call.verifications] == [("VoiceAuth", "p-1")]


async def test_check_before_any_result_writes_no_decision(sandbox_asgi: Asgi) -> None:
    """A check that finds nothing leaves CheckRiskAndAuthentication.

    Spec: Call activity status.
    """
    answer = await sandbox_asgi.details(sandbox_asgi.call().voice_id, check=True)
    assert (answer["status"], answer["isVoiceVerified"]) == ("CheckRiskAndAuthentication", False)


async def test_check_of_a_pending_call_says_voice_pending(sandbox_asgi: Asgi) -> None:
    """While the provider evaluates, the status text is Voice Pending, until there is a result.

    Spec: Call activity status.
    """
    call = sandbox_asgi.call(Happening(Kind.PENDING, 0), Happening(Kind.GREEN, 10))
    sandbox_asgi.advance(1)
    pending = await sandbox_asgi.details(call.voice_id, check=True)
    sandbox_asgi.advance(10)
    green = await sandbox_asgi.details(call.voice_id, check=True)
    assert (pending["status"], green["status"]) == ("Voice Pending", "FullAuthentication")


async def test_check_shows_mismatch_and_risky_device(sandbox_asgi: Asgi) -> None:
    """A mismatch is a status and a flag, a risky device a flag.

    Spec: Phone call record; Call activity status.
    """
    call = sandbox_asgi.call(Happening(Kind.MISMATCH, 0), Happening(Kind.HIGH_RISK, 0))
    sandbox_asgi.advance(1)
    answer = await sandbox_asgi.details(call.voice_id, check=True)
    assert (answer["status"], answer["isVoiceMismatch"], answer["isHighRiskDevice"]) == ("VoiceMismatch", True, True)


async def test_check_does_not_overwrite_what_an_operator_established(sandbox_asgi: Asgi) -> None:
    """A check that finds nothing leaves AnsweredQuestions alone.

    Spec: Call activity status.
    """
    call = sandbox_asgi.call(Happening(Kind.ANSWERED_QUESTIONS, 0))
    sandbox_asgi.advance(1)
    assert (await sandbox_asgi.details(call.voice_id, check=True))["status"] == "AnsweredQuestions"


STOPS = {
    "authenticated": Happening(Kind.GREEN),
    "rejected": Happening(Kind.REJECTED),
    "rejected by a rule": Happening(Kind.REJECTED_BY_RULE),
    "red": Happening(Kind.RED),
    "ended": Happening(Kind.END),
    "enrolled": Happening(Kind.ENROLLED, person_id="p-1"),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
async def test_stop_condition_ends_the_queries(sandbox_asgi: Asgi, stop: Happening) -> None:
    """Authenticated, rejected, red, ended: the provider is not queried again and the record stays as it is.

    Spec: Polling stop rule.
    """
    call = sandbox_asgi.call()
    happen_now(sandbox_asgi.world, call, stop)
    await sandbox_asgi.details(call.voice_id, check=True)
    used = call.checks_used
    stored = await sandbox_asgi.details(call.voice_id)
    sandbox_asgi.happen(call, Kind.GREEN, "Green Late")
    for _ in range(3):
        assert await sandbox_asgi.details(call.voice_id, check=True) == stored
    assert call.checks_used == used


async def test_twentieth_check_is_the_last(sandbox_asgi: Asgi) -> None:
    """After 20 checks the stored result is served, whatever the provider has come to know.

    Spec: Polling stop rule; Limits.
    """
    call = sandbox_asgi.call()
    for _ in range(20):
        await sandbox_asgi.details(call.voice_id, check=True)
    sandbox_asgi.happen(call, Kind.GREEN)
    answer = await sandbox_asgi.details(call.voice_id, check=True)
    assert (answer["status"], call.checks_used) == ("CheckRiskAndAuthentication", 20)
    assert sandbox_asgi.sandbox.ledger.tally(call.voice_id).arrived["check"] == 21


async def test_twentieth_check_still_counts(sandbox_asgi: Asgi) -> None:
    """The 20th check itself queries the provider.

    Spec: Limits.
    """
    call = sandbox_asgi.call()
    for _ in range(19):
        await sandbox_asgi.details(call.voice_id, check=True)
    sandbox_asgi.happen(call, Kind.GREEN)
    assert (await sandbox_asgi.details(call.voice_id, check=True))["status"] == "FullAuthentication"


async def test_research_case_is_shown(sandbox_asgi: Asgi) -> None:
    """A call under investigation carries its case.

    Spec: Research case.
    """
    call = sandbox_asgi.call()
    sandbox_asgi.happen(call, Kind.CASE, "DeterminedFraud")
    case = (await sandbox_asgi.details(call.voice_id))["researchCase"]
    assert (case["researchStatus"], case["voiceId"]) == ("DeterminedFraud", call.voice_id)


async def test_research_case_can_be_about_another_call(sandbox_asgi: Asgi) -> None:
    """A case has a voice id of its own; what is said later of this call's case replaces it.

    Spec: Research case.
    """
    call = sandbox_asgi.call()
    sandbox_asgi.happen(call, Kind.CASE_ELSEWHERE, "DeterminedFraud")
    case = (await sandbox_asgi.details(call.voice_id))["researchCase"]
    assert (case["researchStatus"], case["voiceId"]) == ("DeterminedFraud", f"other-{call.voice_id}")
    sandbox_asgi.happen(call, Kind.CASE)
    case = (await sandbox_asgi.details(call.voice_id))["researchCase"]
    assert (case["researchStatus"], case["voiceId"]) == ("NeedsReview", call.voice_id)


async def test_scripted_status_and_error_are_shown(sandbox_asgi: Asgi) -> None:
    """Any status text can be scripted, known to the document or not, and a voice authentication error.

    Spec: Call activity status; Phone call record.
    """
    call = sandbox_asgi.call()
    sandbox_asgi.happen(call, Kind.STATUS, "SomethingNew")
    sandbox_asgi.happen(call, Kind.ERROR, "no audio")
    answer = await sandbox_asgi.details(call.voice_id)
    assert (answer["status"], answer["voiceAuthenticationError"]) == ("SomethingNew", "no audio")
