"""What a certificate is made of, read from a real Redis: the call, pushes that name another one, samples, outcomes."""

import json
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from callkeeper.app.certification.evidence import OutcomeDelivery, gather
from callkeeper.app.certification.verdicts import PromiseState, verdicts
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.store.delivery_log import Attempt, DeliveryLog
from callkeeper.calls.store.keys import KEYS
from callkeeper.service.push_event import parse_push
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, PHONE, Rig

pytestmark = pytest.mark.usefixtures("begun_now")  # a certificate is read by Redis's clock


async def push(rig: Rig, voice_id: str, *, phone: str = PHONE, kind: str = "CallStart", is_test: bool = False) -> None:
    """Record a push of the institution."""
    body = {"Type": kind, "VoiceId": voice_id, "PhoneNumber": phone, "InstitutionKey": KEY, "IsTest": is_test or None}
    await rig.intake.record(parse_push(json.dumps(body).encode()), event_id=f"ev-{voice_id}")


async def test_pushes_under_another_id_are_recognised_by_the_number(rig: Rig, redis: Redis) -> None:
    """A push from the caller's number that names no id of the call is a stray one; others' pushes and samples are not."""
    began_at = rig.clock.now - timedelta(seconds=1)
    call = await rig.begin_call(Happening(Kind.END, 10), run_s=2, is_pushed=False)
    await push(rig, call.voice_id.upper())
    await push(rig, "another-id")
    await push(rig, "a-sample", is_test=True)
    await push(rig, "of-somebody-else", phone="5559990000")
    await rig.run(30)
    evidence = await gather(redis, KEYS, institution_key=KEY, began_at=began_at, call_id=rig.call_id(call))
    assert [each.type for each in evidence.stray] == ["CallStart"]
    assert evidence.call is not None
    assert evidence.call.is_settled
    assert evidence.sample_at is not None
    assert evidence.deliveries == OutcomeDelivery()
    found = {each.id: each.state for each in verdicts(evidence)}
    assert (found["found"], found["one-call"], found["settled"]) == (PromiseState.HOLDS,) * 3


async def test_outcomes_count_once_the_receiver_accepted_them(rig: Rig, redis: Redis) -> None:
    """Each outcome of the call is due once; a failed attempt that was repeated with success counts as accepted."""
    call = await rig.begin_call(Happening(Kind.END, 5), run_s=30, is_pushed=False)
    log, call_id, now = DeliveryLog(redis, KEYS.outbox), rig.call_id(call), rig.clock.now
    await log.announce("https://receiver.example")
    due = len(outcomes(await rig.queries.trail(call_id)))
    assert due
    seen = []
    for n, status in enumerate((500, 200)):
        attempt = Attempt(
            id=f"{call_id.member}.0.settled", type="call.settled", at=now + timedelta(seconds=n), status=status
        )
        await log.write(attempt)
        evidence = await gather(redis, KEYS, institution_key=KEY, began_at=now, call_id=call_id)
        seen.append((evidence.deliveries.due, evidence.deliveries.accepted))
    assert seen == [(due, 0), (due, 1)]
