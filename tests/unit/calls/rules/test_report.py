"""What rules did over many recorded calls."""

from callkeeper.calls.record import Phase
from callkeeper.calls.rules.report import Disagreement, report
from callkeeper.calls.trail import Entry, Recorded, Tried
from tests.unit.calls.specimens import BOOK, NOW


def decided(rule: str, kind: str, *tried: Tried, asked: str = "enroll", forbidden: tuple[str, ...] = ()) -> Entry:
    """Return a decision."""
    return Entry(at=NOW, what="decided", rule=rule, kind=kind, asked=asked, tried=tried, forbidden=forbidden, rules="d")


def recording(*trail: Entry) -> Recorded:
    """Return a call with a trail."""
    return Recorded(institution_key="cu-1", voice_id="v-1", phase=Phase.SETTLED, trail=trail)


def test_rule_is_counted_once_a_call_and_its_effect_is_followed() -> None:
    """From the decision to the last known state; an assign is no rule's."""
    sent = Entry(at=NOW, what="sent", kind="enroll")
    doubt = Entry(at=NOW, what="answered", kind="enroll", state="unknown")
    found = Entry(at=NOW, what="established", kind="enroll", state="confirmed")
    assign = decided("a", "assign", asked="assign")
    result = report(
        [recording(assign, decided("r", "enroll"), decided("r", "enroll"), sent, doubt, found)], BOOK.policies
    )
    tally = result.rules["cu-1", "r"]
    assert (result.calls, tally.matched, dict(tally.sent), dict(tally.ended)) == (
        1,
        1,
        {"enroll": 1},
        {"confirmed": 1},
    )
    assert ("cu-1", "a") not in result.rules
    assert result.digests == {"d": 1}


def test_rule_that_the_law_held_back_is_counted() -> None:
    """It matched all the same."""
    tally = report([recording(decided("r", "hold", forbidden=("paused",)))], BOOK.policies).rules["cu-1", "r"]
    assert (tally.matched, tally.held_by_law) == (1, 1)


def test_rule_in_shadow_counts_once_by_the_strongest_thing_it_would_have_done() -> None:
    """A hold by the law is weaker; where it differs from the live rules the call is named."""
    held = Tried("s", "reject", "shadow", "shadowed", forbidden=("voice_rejected",))
    free = Tried("s", "reject", "shadow", "shadowed")
    result = report([recording(decided("r", "hold", free), decided("r", "hold", held))], BOOK.policies)
    tally = result.rules["cu-1", "s"]
    assert (tally.shadowed, dict(tally.would), tally.disagreements) == (1, {"reject": 1}, 1)
    (one,) = result.disagreements
    assert isinstance(one, Disagreement)
    assert (one.rule, one.live) == ("s", "hold by 'r'")
    agreed = report([recording(decided("r", "hold", held))], BOOK.policies).rules["cu-1", "s"]
    assert (dict(agreed.would), agreed.disagreements) == ({"hold": 1}, 0)


def test_policies_without_a_colour_are_counted_by_calls() -> None:
    """Whatever the number of entries."""
    names = Entry(at=NOW, what="read", policies=("Mauve", "Green Voice Authentication"))
    assert report([recording(names, names)], BOOK.policies).colourless == {"Mauve": 1}
