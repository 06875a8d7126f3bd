"""Enroll and reject-voice: all that they write, and to which calls."""

import pytest

from callkeeper_sandbox.service.state import Happening, Kind
from tests.sandbox_fixtures import PHONE, Asgi

MANUAL = "Green Manual Authentication"


async def test_enroll_has_all_its_effects(sandbox_asgi: Asgi) -> None:
    """Two activities, the manual policy, SUCCESSFUL feedback, a verification of the given kind.

    Spec: States and transitions, row 2; Endpoints 6.
    """
    call = sandbox_asgi.call()
    answer = await sandbox_asgi.enroll(call.voice_id, validationType="OneTimePasswordAuth", notes="asked")
    assert answer["success"] is True
    assert [activity.name for activity in call.activities[-2:]] == ["AcceptCallerVoice", "FullAuthentication"]
    assert call.feedback == ["SUCCESSFUL"]
    assert [(made.person_id, made.validation_type) for made in call.verifications] == [("p-1", "OneTimePasswordAuth")]
    record = await sandbox_asgi.details(call.voice_id)
    assert (record["status"], record["metaData"]["vendorPolicies"]) == ("FullAuthentication", [MANUAL])
    assert (record["isVerified"], record["isEnrolled"], record["notes"]) == (True, True, "asked")


async def test_enroll_of_a_green_call_verifies_again(sandbox_asgi: Asgi) -> None:
    """An already green call accepts an enroll, which records a second verification and sends feedback again.

    Spec: Rules per operation 3.
    """
    call = sandbox_asgi.call(Happening(Kind.GREEN, 0))
    sandbox_asgi.advance(1)
    await sandbox_asgi.details(call.voice_id, check=True)
    await sandbox_asgi.enroll(call.voice_id)
    await sandbox_asgi.enroll(call.voice_id)
    kinds = [made.validation_type for made in call.verifications]
    assert kinds == ["VoiceAuth", "KnowledgeBasedAuth", "KnowledgeBasedAuth"]
    assert call.feedback == ["SUCCESSFUL", "SUCCESSFUL"]


async def test_enroll_resolves_an_alternate_id(sandbox_asgi: Asgi) -> None:
    """Either id enrolls the call.

    Spec: Rules per operation 3; What the service does.
    """
    call = sandbox_asgi.call()
    assert (await sandbox_asgi.enroll(call.alternate_id))["success"] is True
    assert call.fully_authenticated


@pytest.mark.parametrize("kind", ["VoiceAuth", "OneTimePasswordAuth", "KnowledgeBasedAuth", "NoAuth", "Other"])
async def test_enroll_takes_every_validation_type(sandbox_asgi: Asgi, kind: str) -> None:
    """Each of the five validation types is accepted.

    Spec: Other shapes.
    """
    call = sandbox_asgi.call()
    assert (await sandbox_asgi.enroll(call.voice_id, validationType=kind))["success"] is True


@pytest.mark.parametrize("wrong", [{"validationType": "Palm"}, {"personId": None}])
async def test_malformed_enroll_is_refused_without_effect(sandbox_asgi: Asgi, wrong: dict[str, str | None]) -> None:
    """An unknown validation type or a missing person changes nothing.

    Spec: Endpoints 6; Errors 1.
    """
    call = sandbox_asgi.call()
    body = {"personId": "p-1", "validationType": "Other", **wrong}
    answer = await sandbox_asgi.ask("POST", f"/calls/{call.voice_id}/enroll", body)
    assert (answer["success"], call.status, call.feedback) == (False, "CallStarted", [])


async def test_enroll_of_an_unknown_call_is_refused(sandbox_asgi: Asgi) -> None:
    """A call that cannot be resolved cannot be enrolled.

    Spec: States and transitions, row 2; Errors 1.
    """
    assert (await sandbox_asgi.enroll("unknown"))["error"] == "Phone call not found."


async def test_reject_has_all_its_effects(sandbox_asgi: Asgi) -> None:
    """The activity is written, FAILED feedback is sent, no body is needed.

    Spec: States and transitions, row 3; Endpoints 7.
    """
    call = sandbox_asgi.call()
    answer = await sandbox_asgi.ask("POST", f"/calls/{call.voice_id}/reject-voice")
    assert (answer["success"], call.status, call.feedback) == (True, "RejectCallerVoice", ["FAILED"])


async def test_reject_does_not_resolve_an_alternate_id(sandbox_asgi: Asgi) -> None:
    """Reject-voice knows real ids only.

    Spec: What the service does; Rules per operation 4.
    """
    call = sandbox_asgi.call()
    answer = await sandbox_asgi.ask("POST", f"/calls/{call.alternate_id}/reject-voice")
    assert (answer["success"], answer["error"], call.rejected) == (False, "Phone call not found.", False)


async def test_reject_unenrolls_all_manual_authentications_of_the_member(sandbox_asgi: Asgi) -> None:
    """Every earlier enroll of that member is undone, in ended and live calls; another member's and a voice match stay.

    Spec: States and transitions, row 3.
    """
    ended, live = sandbox_asgi.call(), sandbox_asgi.call()
    other, green = sandbox_asgi.call(), sandbox_asgi.call(Happening(Kind.GREEN, 0))
    for call, person in ((ended, "p-1"), (live, "p-1"), (other, "p-2")):
        await sandbox_asgi.enroll(call.voice_id, person)
    sandbox_asgi.happen(ended, Kind.END)
    sandbox_asgi.advance(1)
    await sandbox_asgi.ask("POST", "/calls/assign", {"voiceId": green.voice_id, "personId": "p-1"})
    await sandbox_asgi.details(green.voice_id, check=True)
    rejected = sandbox_asgi.call()
    await sandbox_asgi.ask("POST", "/calls/assign", {"voiceId": rejected.voice_id, "personId": "p-1"})
    await sandbox_asgi.ask("POST", f"/calls/{rejected.voice_id}/reject-voice")
    assert [call.status for call in (ended, live)] == ["FullAuthenticationUnenrolled"] * 2
    assert [call.status for call in (other, green)] == ["FullAuthentication"] * 2
    record = await sandbox_asgi.details(live.voice_id)
    assert (record["isEnrolled"], record["metaData"]["vendorPolicies"]) == (False, [])


async def test_reject_of_an_enrolled_call_ends_rejected(sandbox_asgi: Asgi) -> None:
    """A call that was itself enrolled is un-enrolled first and ends as rejected.

    Spec: States and transitions, row 3.
    """
    call = sandbox_asgi.call()
    await sandbox_asgi.enroll(call.voice_id)
    await sandbox_asgi.ask("POST", f"/calls/{call.voice_id}/reject-voice")
    assert [activity.name for activity in call.activities[-2:]] == ["FullAuthenticationUnenrolled", "RejectCallerVoice"]
    assert (call.feedback, call.fully_authenticated) == (["SUCCESSFUL", "FAILED"], False)


async def test_second_reject_unenrolls_nothing_more(sandbox_asgi: Asgi) -> None:
    """A second reject finds nothing left to un-enroll.

    Spec: States and transitions, row 3.
    """
    enrolled = sandbox_asgi.call()
    await sandbox_asgi.enroll(enrolled.voice_id)
    for _ in range(2):
        call = sandbox_asgi.call(phone_number=PHONE)
        await sandbox_asgi.ask("POST", "/calls/assign", {"voiceId": call.voice_id, "personId": "p-1"})
        await sandbox_asgi.ask("POST", f"/calls/{call.voice_id}/reject-voice")
    assert [activity.name for activity in enrolled.activities].count("FullAuthenticationUnenrolled") == 1


async def test_end_settles_the_record(sandbox_asgi: Asgi) -> None:
    """At its end a call is settled: ended, with a duration, the final policies, and the provider's last event with scores.

    Spec: States and transitions, row 4; Vendor event; Vendor call.
    """
    call = sandbox_asgi.call(Happening(Kind.RED, 1), Happening(Kind.END, 62))
    live = await sandbox_asgi.details(call.voice_id)
    sandbox_asgi.advance(62)
    record = await sandbox_asgi.details(call.voice_id)
    assert (record["callEnded"], record["callDuration"], record["status"]) == (True, "0:01:02", "CallEnded")
    assert record["metaData"]["vendorPolicies"] == ["Red High Risk"]
    assert live["vendorEvents"] is None
    assert record["vendorEvents"][0]["call"]["voiceScore"] == 0.5
    assert record["vendorEvents"][0]["call"]["duration"] == 62.0
