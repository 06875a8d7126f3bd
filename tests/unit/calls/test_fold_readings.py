"""Parsing of the service's answers drops personal data."""

import json

import msgspec

from callkeeper.calls.fold import reading_of
from callkeeper.calls.record import Reading
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.phone_calls import PhoneCall
from tests.unit.calls.specimens import NOW
from tests.unit.calls.test_notes import CANARIES


def test_reading_keeps_no_scores_and_no_personal_data() -> None:
    """Raw scores, names, notes and numbers of the service's record have no field in ours (Spec: Vendor call)."""
    wire = {
        "voiceId": "v-1",
        "firstName": "Ada",
        "notes": "born 1900-01-01",
        "phoneNumber": "5550100001",
        "valueForCore": "core-p-1",
        "vendorEvents": [{"call": {"voiceScore": 99.5, "riskScore": "77"}}],
        "metaData": {"vendorPolicies": ["Green A"]},
    }
    kept = reading_of(Reader(PhoneCall).read(json.dumps(wire).encode()), NOW)
    assert kept == Reading(read_at=NOW, voice_id="v-1", policies=("Green A",))
    assert not [text for text in (*CANARIES, "99.5", "77", "Ada") if text in msgspec.json.encode(kept).decode()]
