"""A call goes from push to settled, with real processes, Redis, RQ and HTTP."""

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.record import Reason
from tests.harness.processes import Stack, end

GREEN = {"kind": "green", "after_s": 3}


def test_main_job_goes_from_push_to_settled(running: Stack) -> None:
    """A pushed call is assigned, checked until it is green, and settled as authenticated."""
    call = running.call(GREEN, end(5))
    record = running.settled(call)
    assert record.life.reason is Reason.AUTHENTICATED
    assert record.ledger.assign.state is EffectState.APPLIED
    counts = running.arrived(call)
    assert counts["assign"] == 1
    assert 1 <= counts["check"] <= 20
    assert "enroll" not in counts
    assert "reject_voice" not in counts
    assert "pushed" in {entry.what for entry in running.trail(call)}


def test_main_job_enrolls_a_caller_whom_the_service_verified_once(running: Stack) -> None:
    """A passcode that the service validated leads to one enroll with its validation type."""
    call = running.call({"kind": "mfa_validated", "after_s": 4}, end(10))
    record = running.settled(call)
    assert record.life.reason is Reason.ENROLLED
    account = running.account(call)
    assert account["tally"]["arrived"]["enroll"] == 1
    verification = account["verifications"][-1]
    assert verification["validation_type"] == "OneTimePasswordAuth"
    assert verification["person_id"] == record.seen.person_id
