"""The service's words that have a meaning for us."""

from callkeeper.calls.statuses import ESTABLISHES, OTHERWISE, REJECTED, VALIDATION_TYPES


def test_identity_is_established_by_types_that_an_enroll_may_use() -> None:
    """Neither by the voice nor by nothing (Spec: Rules per operation 3)."""
    assert set(ESTABLISHES.values()) <= set(OTHERWISE) < set(VALIDATION_TYPES)
    assert not {"VoiceAuth", "NoAuth"} & set(OTHERWISE)
    assert not REJECTED & set(ESTABLISHES)
