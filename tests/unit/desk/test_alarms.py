"""In which order a page shows its alarms."""

from callkeeper.desk.board.alarms import Alarm, merged
from callkeeper.desk.board.states import StateTone


def alarm(title: str, tone: StateTone, *, is_incident: bool = False, known: str = "") -> Alarm:
    """Return an alarm."""
    return Alarm(
        slot=f"a-{title}",
        tone=tone,
        title=title,
        advice="Look.",
        where="",
        address=None,
        since=None,
        institution_key="",
        section="",
        is_incident=is_incident,
        known=known,
    )


def test_incidents_stand_before_calls_and_what_is_known_stands_last() -> None:
    """A page shows a few. Many calls on which a rule asks must not hide a worker that vanished."""
    alarms = [
        alarm("known page", StateTone.BAD, is_incident=True, known="by ann"),
        alarm("rule asks", StateTone.BAD),
        alarm("worker vanished", StateTone.WARN, is_incident=True),
        alarm("no web", StateTone.BAD, is_incident=True),
    ]
    assert [each.title for each in merged(alarms)] == ["no web", "worker vanished", "rule asks", "known page"]
