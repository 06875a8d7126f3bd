"""The service's words that have a meaning for us."""

from callkeeper.calls.statuses import ESTABLISHES, NO_CHANGE, OTHERWISE, REJECTED, STATUSES, VALIDATION_TYPES, Status


def test_every_status_is_listed_once() -> None:
    """A status changes something, or it does not."""
    assert len(STATUSES) == len(set(STATUSES)) == len(Status) + len(NO_CHANGE)


def test_identity_is_established_by_types_that_an_enroll_may_use() -> None:
    """Neither by the voice nor by nothing (Spec: Rules per operation 3)."""
    assert set(ESTABLISHES.values()) <= set(OTHERWISE) < set(VALIDATION_TYPES)
    assert not {"VoiceAuth", "NoAuth"} & set(OTHERWISE)
    assert not REJECTED & set(ESTABLISHES)
