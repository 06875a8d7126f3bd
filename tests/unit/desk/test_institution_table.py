"""The table of institutions: the state of each, and which come first."""

from datetime import timedelta
from typing import Any

import pytest

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.signals import Signals
from callkeeper.calls.metrics.snapshot import Minute, Snapshot
from callkeeper.calls.pause import Pause, Pauses, PauseScope
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.last_listing import Standing
from callkeeper.desk.board.alarms import Alarm
from callkeeper.desk.board.board_context import BoardContext, Pushes
from callkeeper.desk.board.frame import Frame, Hour, frame_of, hour_of
from callkeeper.desk.board.groups import groups_of
from callkeeper.desk.board.institution_table import InstitutionRow, institution_rows, refused_by
from callkeeper.desk.board.renderer import DIRECT, FIRST_SHOWN, INSTITUTIONS_SHOWN, Renderer, sifted
from callkeeper.desk.board.rows import LiveCall, slot_of
from callkeeper.desk.board.states import StateTone, state_of
from tests.unit.calls.specimens import NOW, call, reading

BOOK = load_rules(None)


def context(*keys: str, **more: Any) -> BoardContext:
    """Return what is known beside the calls, with these institutions."""
    standings = {
        key: Standing(key=key, name=f"Name of {key}", status="Active", has_voice_auth=True, told_at=NOW) for key in keys
    }
    known: dict[str, Any] = {
        "attention": {},
        "records": {},
        "pauses": Pauses({}),
        "standings": standings,
        "signals": Signals(now=NOW),
        "hour": (),
        "pushes": Pushes(),
    }
    return BoardContext(now=NOW, **{**known, **more})


def live(key: str, n: int = 1, **changes: Any) -> list[LiveCall]:
    """Return live calls of an institution."""
    found = []
    for each in range(n):
        record = call(institution_key=key, voice_id=f"{key}-{each}", **changes)
        found.append(LiveCall(slot_of(f"c:{key}:{each}"), record, state_of(record, BOOK)))
    return found


def rows(
    known: BoardContext, calls: list[LiveCall], alarms: list[Alarm] | None = None, **refused: int
) -> dict[str, InstitutionRow]:
    """Return the lines of the table, in its order."""
    ranks = {
        each.call.institution_key: sum(one.call.institution_key == each.call.institution_key for one in calls)
        for each in calls
    }
    found = institution_rows(groups_of(calls, known), known, alarms or [], refused, ranks)
    return {row.key: row for row in found}


def alarm(key: str, tone: StateTone = StateTone.BAD, **more: Any) -> Alarm:
    """Return an alarm about an institution or one of its calls."""
    return Alarm(f"a-{key}", tone, "Requests fail", "Look.", institution_key=key, **more)


ACKNOWLEDGED = alarm("cu-1", is_incident=True, known="acknowledged by ann")


def test_acknowledged_incident_is_trouble_that_calls_nobody() -> None:
    """It is grey, and comes after what nobody knows of yet; the line of working institutions is another one."""
    known = context("cu-1", "cu-2", "cu-3")
    found = rows(known, [*live("cu-1", 2), *live("cu-2")], [ACKNOWLEDGED, alarm("cu-3", is_incident=True)])
    assert list(found) == ["cu-3", "cu-1", "cu-2"]
    assert (found["cu-1"].state.tone, found["cu-1"].has_trouble) == (StateTone.IDLE, True)
    assert (found["cu-2"].state.word, found["cu-2"].has_trouble) == ("Working", False)


def test_trouble_comes_first_then_the_most_calls() -> None:
    """An urgent incident, calls that need a person, other incidents, then live calls by their number, then the rest."""
    known = context("a-idle", "b-few", "c-many", "d-warned", "e-waiting", "f-down")
    calls = [*live("b-few", 2), *live("c-many", 5), *live("d-warned", 3), *live("e-waiting")]
    alarms = [
        alarm("d-warned", StateTone.WARN, is_incident=True),
        alarm("e-waiting", StateTone.WARN),
        alarm("f-down", is_incident=True),
    ]
    assert list(rows(known, calls, alarms)) == ["f-down", "e-waiting", "d-warned", "c-many", "b-few", "a-idle"]


def test_order_follows_the_counts_of_a_moment_ago() -> None:
    """Lines do not jump while somebody reads: the count in the line is new, its place is that of the last ranking."""
    known = context("a", "b")
    calls = [*live("a", 1), *live("b", 3)]
    found = institution_rows(groups_of(calls, known), known, [], {}, {"a": 2, "b": 1})
    assert [(row.key, row.live) for row in found] == [("a", 1), ("b", 3)]


@pytest.mark.parametrize(
    ("more", "alarms", "word", "is_quiet"),
    [
        ({}, [], "No calls", True),
        ({"pauses": {"x": "cu-1"}}, [], "Paused", False),
        ({"pauses": {"x": "*"}}, [], "Paused", False),
        ({}, [alarm("cu-1", is_incident=True)], "Requests fail", False),
        ({}, [ACKNOWLEDGED], "Acknowledged: Requests fail", False),
        ({}, [ACKNOWLEDGED, alarm("cu-1")], "Needs a person", False),
        ({"pauses": {"x": "cu-1"}}, [ACKNOWLEDGED], "Acknowledged: Requests fail", False),
        ({"late_s": {"cu-1": 14.2}}, [ACKNOWLEDGED], "Late", False),
        ({}, [alarm("cu-1")], "Needs a person", False),
        ({}, [alarm("cu-1", StateTone.WARN, is_incident=True), alarm("cu-1")], "Needs a person", False),
        ({}, [alarm("cu-2")], "No calls", True),
        ({"late_s": {"cu-1": 14.2}}, [], "Late", False),
        ({"late_s": {"cu-1": 4.2}}, [], "No calls", False),
        ({"late_s": {"cu-1": 1.2}}, [], "No calls", True),
    ],
)
def test_institution_has_one_word(more: dict[str, Any], alarms: list[Alarm], word: str, is_quiet: bool) -> None:
    """What is worst is its word. Another's trouble is none; who waits, or has an acknowledged incident, is not quiet."""
    if "pauses" in more:
        pause = Pause(scope=PauseScope.EFFECTS, operator="ann", because="drill", at=NOW)
        more = {"pauses": Pauses({more["pauses"]["x"]: pause})}
    row = rows(context("cu-1", **more), [], alarms)["cu-1"]
    assert (row.state.word, row.is_quiet) == (word, is_quiet)


def test_inactive_institution_says_so_and_is_quiet() -> None:
    """Nothing is done for its calls, so nobody has to look."""
    known = context("cu-1")
    disabled = {"cu-1": Standing(key="cu-1", name="Mine", status="Disabled", told_at=NOW)}
    row = rows(context("cu-1", standings=disabled), [])["cu-1"]
    assert (row.state.word, row.is_quiet, known.standings["cu-1"].obstacle) == ("Not active", True, None)


@pytest.mark.parametrize(("late_s", "shown"), [(0.0, 0), (1.9, 0), (2.4, 2), (9.9, 9), (14.9, 10), (61.0, 60)])
def test_lag_is_shown_from_two_seconds_on_and_in_steps(late_s: float, shown: int) -> None:
    """A backlog does not change every line twice a second."""
    assert rows(context("cu-1", late_s={"cu-1": late_s}), [])["cu-1"].late_s == shown


def test_refused_are_requests_and_listings_of_an_hour() -> None:
    """What was answered or failed otherwise does not count."""
    counts: dict[str, dict[tuple[str, ...], int]] = {
        figure.ACCESS_REFUSED.name: {("cu-1", "check"): 2, ("cu-2", "check"): 1},
        figure.LISTINGS.name: {("cu-1", "refused"): 3, ("cu-1", "answered"): 40, ("cu-1", "failed"): 7},
    }
    minutes = [Minute(NOW - timedelta(minutes=n), Snapshot(counts)) for n in range(2)]
    assert refused_by(minutes) == {"cu-1": 10, "cu-2": 2}


def crowd(institutions: int, calls: list[LiveCall]) -> Frame:
    """Return a moment with so many institutions."""
    known = context(*(f"cu-{n:03d}" for n in range(institutions)))
    counts = {f"cu-{n:03d}": institutions - n for n in range(institutions)}
    return frame_of(1, calls, known, Hour(live=counts))


def test_tile_of_live_calls_is_as_new_as_the_line_below_it() -> None:
    """Both numbers are counted with each frame, although the minutes of the hour are read every three seconds."""
    read_before = hour_of((), live("cu-000", 2))
    frame = frame_of(1, live("cu-000", 5), context("cu-000"), read_before)
    assert (frame.tiles[0].title, frame.tiles[0].number, frame.live) == ("Live calls", "5", 5)


def test_small_installation_shows_the_calls_of_each_institution() -> None:
    """Up to ten institutions are shown with their calls as lines; those without calls only in the table."""
    view = Renderer("/board", BOOK).view(crowd(DIRECT, live("cu-003", 2)))
    assert len(view.order["groups"]) == 1
    assert (len(view.order["institutions-rows"]), view.order["quiet-rows"]) == (DIRECT, ())
    assert "first-rows" not in view.order


def test_large_installation_shows_the_calls_to_look_at_first() -> None:
    """Those that need a person, then red ones, then the newest; decided ones are not among them."""
    red = live("cu-001", 1, reading=reading(policies=("Red Risky Caller",)), red_seen=True)
    green = live("cu-002", 1, reading=reading(policies=("Green Voice Authentication",)))
    view = Renderer("/board", BOOK).view(crowd(300, [*live("cu-003", 40), *green, *red]))
    assert len(view.order["first-rows"]) == FIRST_SHOWN
    assert view.order["first-rows"][0] == red[0].slot
    assert green[0].slot not in view.order["first-rows"]
    assert "groups" not in view.order


def test_large_installation_folds_what_has_no_trouble() -> None:
    """The first lines are shown, others with calls are in one fold and quiet ones in another; none is left out."""
    calls = [each for n in range(100) for each in live(f"cu-{n:03d}")]
    view = Renderer("/board", BOOK).view(crowd(300, calls))
    parts = [len(view.order[name]) for name in ("institutions-rows", "others-rows", "quiet-rows")]
    assert parts == [INSTITUTIONS_SHOWN, 100 - INSTITUTIONS_SHOWN, 200]


def test_filter_of_the_server_finds_names_keys_and_states() -> None:
    """Without the page's script the server leaves out the other lines, in the folds too."""
    frame = crowd(300, live("cu-003"))
    view = Renderer("/board", BOOK).view(frame)
    assert len(sifted(view, frame, "NAME OF CU-29").order["quiet-rows"]) == 10
    assert len(sifted(view, frame, "working").order["institutions-rows"]) == 1


def test_limited_person_sees_no_other_institution() -> None:
    """Who is limited to two institutions has a table with two lines, as a small installation."""
    view = Renderer("/board", BOOK).view(crowd(300, live("cu-003")), None, frozenset({"cu-001", "cu-002"}))
    assert len(view.order["institutions-rows"]) == 2
    assert "cu-003" not in "".join(view.html.values())


def test_rendered_pieces_are_kept_only_up_to_a_bound() -> None:
    """However many calls come and go, a process remembers a bounded number of pieces."""
    renderer = Renderer("/board", BOOK)
    for n in range(3):
        calls = [each for k in range(10) for each in live(f"cu-{k:03d}", 40, checks_used=n)]
        renderer.view(crowd(10, calls))
    for n in range(6000):
        renderer._once("quiet", f"i-{n}", rows(context("cu-1"), [])["cu-1"])
    assert len(renderer._written) <= 5000
