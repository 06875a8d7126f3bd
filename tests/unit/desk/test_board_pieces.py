"""The figures of an hour as tiles: what is counted where, and what is called bad."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.snapshot import Minute, Snapshot, Spread
from callkeeper.calls.rules import load_rules
from callkeeper.desk.board.alarms import REDIS_AWAY, Alarm, merged
from callkeeper.desk.board.hour import Tile, seconds, tiles_of
from callkeeper.desk.board.live_updates import PageUpdates
from callkeeper.desk.board.renderer import ALARMS_SHOWN, STATIC, Renderer, View
from callkeeper.desk.board.states import StateTone
from tests.unit.calls.specimens import NOW


def minute(ago: int, counts: dict[str, dict[tuple[str, ...], int]], **lags: int) -> Minute:
    """Return a minute in which so much was counted, and so many checks found a result after one or two seconds."""
    snapshot = Snapshot(counts)
    if lags:
        spread = Spread.empty(figure.DETECTION_LAG)
        spread.counts[3], spread.counts[4] = lags["one_s"], lags["two_s"]
        spread.total = lags["one_s"] + 2.0 * lags["two_s"]
        snapshot.spreads[figure.DETECTION_LAG.name] = {(): spread}
    return Minute(NOW - timedelta(minutes=ago), snapshot)


HOUR = [
    minute(
        2,
        {figure.CALLS_FOUND.name: {("cu-1", "push"): 4, ("cu-1", "queue"): 1}, figure.PUSHES.name: {("CallStart",): 4}},
    ),
    minute(
        1,
        {
            figure.CALLS_FOUND.name: {("cu-1", "push"): 2},
            figure.CALLS_SETTLED.name: {("cu-1", "authenticated"): 3},
            figure.PUSHES_LOST.name: {("cu-1", "CallStart"): 2, ("cu-1", "CallEnd"): 3},
            figure.DECISIONS.name: {("verified", "live", "enroll"): 2, ("strict", "shadow", "reject"): 5},
            figure.SERVICE_REQUESTS.name: {("check", "answered"): 9, ("check", "timeout"): 1},
            figure.BUDGET_SPENT.name: {("cu-1", "early"): 1},
        },
        one_s=1,
        two_s=3,
    ),
    minute(0, {figure.CALLS_FOUND.name: {("cu-1", "push"): 1}, figure.PUSHES_REFUSED.name: {("credentials",): 2}}),
]
TILES = {tile.title: tile for tile in tiles_of(HOUR, live=5)}


def parts(tile: Tile) -> dict[str, tuple[str, bool]]:
    """Return the small numbers of a tile by their words."""
    return {part.word: (part.number, part.is_bad) for part in tile.parts}


def test_course_of_live_calls_is_counted_back_from_now() -> None:
    """Five live calls now, one of them found in this minute: four before; one less net the minute before: five."""
    assert list(TILES["Live calls"].course) == [5, 4, 5]


def test_pushes_are_received_lost_and_refused() -> None:
    """Lost is what had not come when its call was settled, however late it came; a refused push is called bad."""
    tile = TILES["Pushes received"]
    assert (tile.number, list(tile.course)) == ("4", [4, 0]), "what is drawn ends before the minute under way"
    assert parts(tile)["lost"] == ("2 of 3", False)
    assert parts(tile)["refused"] == ("2", True)


def test_gap_before_the_result_is_a_median_with_its_tail() -> None:
    """Three of four results waited up to two seconds."""
    tile = TILES["Gap before the result"]
    assert (tile.number, parts(tile)["p95"][0]) == ("1.3 s", "1.9 s")


def test_each_tile_says_in_a_sentence_what_it_counts() -> None:
    """The sentence is shown at the tile's title; that of the gap does not promise more than was measured."""
    page = "".join(Renderer("/board", load_rules(None)).piece("tile", tile, "t-1") for tile in TILES.values())
    hints = re.findall(r'<h3 title="([A-Z][^"]+\.)">', page)
    assert len(set(hints)) == len(TILES) == 6
    assert "no result waited longer" in TILES["Gap before the result"].hint


def test_decisions_are_told_by_rule_and_stage() -> None:
    """What rules in shadow would have done is told as such, and does not count as decided."""
    tile = TILES["Decisions of rules"]
    assert tile.number == "2"
    assert parts(tile) == {"strict: would reject (shadow)": ("5", False), "verified: enroll": ("2", False)}


def test_errors_of_the_service_and_early_budgets_are_called_bad() -> None:
    """One request in ten failed; one call's checks were spent before the schedule's end."""
    assert parts(TILES["Service answers in"])["errors"] == ("1", True)
    assert parts(TILES["Checks spent"])["early"] == ("1", True)


def test_hour_without_anything_has_tiles_all_the_same() -> None:
    """Before the first minute nothing is known, and that is said with a dash."""
    assert [tile.number for tile in tiles_of([], live=0)] == ["0", "0", "-", "0", "-", "0"]


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.0034, "3 ms"), (1.25, "1.2 s"), (75.0, "75.0 s")])
def test_lengths_are_said_in_few_letters(value: float | None, text: str) -> None:
    """Milliseconds below a second, seconds from there on."""
    assert seconds(value) == text


def told(event: bytes | None) -> Any:
    """Return the data of an event."""
    assert event is not None
    name, _, data = event.decode().removesuffix("\n\n").partition("\ndata: ")
    assert name == "event: updates"
    return msgspec.json.decode(data)


def test_updates_tell_everything_once() -> None:
    """Who connects, or connects again after a restart, is told how all things are; nothing has to be remembered."""
    view = View(NOW, {"status": "<p>1</p>", "c-1": "<li>a</li>"}, {"rows": ("c-1",)})
    first = told(PageUpdates().of(view))
    assert first["html"] == view.html
    assert first["order"] == {"rows": ["c-1"]}
    assert first["now"] == NOW.timestamp() * 1000


def test_updates_tell_only_what_changed() -> None:
    """Of two thousand calls the one that changed is sent, and an order only where it is another."""
    html = {f"c-{n}": f"<li>{n}</li>" for n in range(2000)}
    updates, order = PageUpdates(), {"rows": tuple(html)}
    updates.of(View(NOW, html, order))
    assert updates.of(View(NOW + timedelta(seconds=1), dict(html), dict(order))) is None
    changed = told(updates.of(View(NOW, {**html, "c-7": "<li>seven</li>"}, order)))
    assert (changed["html"], changed["order"]) == ({"c-7": "<li>seven</li>"}, {})
    gone = {slot: markup for slot, markup in html.items() if slot != "c-7"}
    assert told(updates.of(View(NOW, gone, {"rows": tuple(gone)})))["html"] == {}


def test_updates_leave_a_frame_alone_whose_parts_are_told() -> None:
    """A group is sent once: its head and its lines have places of their own."""
    updates = PageUpdates()
    updates.of(View(NOW, {"g": "<section>1</section>"}, {}, {"g": "once"}))
    assert updates.of(View(NOW, {"g": "<section>2</section>"}, {}, {"g": "once"})) is None


def test_updates_of_a_call_that_came_back_are_sent_again() -> None:
    """A line that was folded away and is shown again is sent: the page has dropped it."""
    updates, view = PageUpdates(), View(NOW, {"c-1": "<li>a</li>"}, {"rows": ("c-1",)})
    updates.of(view)
    updates.of(View(NOW, {}, {"rows": ()}))
    assert told(updates.of(view))["html"] == view.html


def trouble(key: str, tone: StateTone = StateTone.WARN) -> Alarm:
    """Return the alarm that no pushes of an institution arrive."""
    return Alarm(f"a-{key}", tone, "No pushes arrive", "Look.", key, institution_key=key, section="incident-no-push")


def test_equal_alarms_of_many_institutions_are_one_card_and_red_ones_come_first() -> None:
    """A question about a call is not hidden behind the same note about fourteen institutions."""
    first, second = merged([*(trouble(f"cu-{n}") for n in range(14)), asked(1)])
    assert first == asked(1)
    assert (second.where.startswith("14 institutions: cu-0, cu-1, "), second.institution_key) == (True, "")
    assert [alarm.slot for alarm in merged([trouble("cu-1"), trouble("cu-2")])] == ["a-cu-1", "a-cu-2"]


def asked(n: int, key: str = "cu-1", rule: str = "another voice") -> Alarm:
    """Return the alarm of a call on which a rule asks; it began so many minutes ago."""
    return Alarm(
        f"a-{n}",
        StateTone.BAD,
        f"Rule {rule!r} asks a person about a call",
        f"{rule}. Say what you know.",
        f"{key}, phone ending in 000{n}",
        f"calls/{key}/v-{n}",
        NOW - timedelta(minutes=n),
        institution_key=key,
        section="doctor-attention",
        rule=rule,
    )


def test_calls_on_which_one_rule_asks_are_one_card_that_leads_to_their_list() -> None:
    """It says how many there are and since when the oldest waits. One call keeps its card, which leads to its page."""
    alone = asked(9, rule="fraud before")
    together, single = merged([asked(1), asked(7, "cu-2"), alone, asked(3)])
    assert single == alone
    assert together.title == "Rule 'another voice' asks a person about 3 calls"
    assert (together.where, together.since, together.calls) == ("2 institutions: cu-1, cu-2", asked(7).since, 3)
    assert together.address == "calls?state=needs-person&rule=another+voice"
    assert merged([asked(1), asked(2)])[0].address == "calls?state=needs-person&rule=another+voice&institution=cu-1"
    assert merged([asked(4), asked(5)])[0].slot == merged([asked(1), asked(2)])[0].slot, "the card stays in its place"


def test_calls_with_the_same_trouble_are_one_card() -> None:
    """Effects in doubt of two calls are one thing to look at; a held call is none of them."""
    doubt = replace(asked(1), title="Reject unresolved", advice="Look.", section="incident-unresolved-effect", rule="")
    held = replace(asked(2), title="Held", advice="The voice does not match.", rule="")
    first, second = merged([doubt, held, replace(doubt, slot="a-3")])
    assert (first.title, first.address) == ("Reject unresolved: 2 calls", "calls?state=unresolved&institution=cu-1")
    assert second == held


def test_redis_that_is_away_is_said_before_all_else() -> None:
    """All that stands below is old. Its link leads to a page that is shown without Redis."""
    known = [replace(trouble("cu-1"), is_incident=True), replace(trouble("cu-2", StateTone.BAD), is_incident=True)]
    assert merged([REDIS_AWAY, *known])[0] == REDIS_AWAY
    assert 'href="/board/operations#incident-redis-away"' in Renderer("/board", load_rules(None)).piece(
        "alarms", [REDIS_AWAY]
    )


def test_calls_of_one_card_are_counted_one_by_one() -> None:
    """The headline counts calls, and so does the line below the cards that are shown, on a phone below fewer of them."""
    many = merged([asked(n, rule=f"rule {n % 8}") for n in range(20)])
    page = Renderer("/board", load_rules(None)).piece("alarms", many)
    assert "Needs a person (20)" in page
    assert page.count("<li ") == ALARMS_SHOWN
    assert re.findall(r"and (\d+) more", page) == ["4", "11"]


def test_what_people_know_of_comes_last() -> None:
    """An acknowledged page does not stand before an unknown note, and is no part of the same card."""
    known = replace(trouble("cu-1", StateTone.BAD), known="acknowledged by ann until 03:00 UTC")
    others = [replace(trouble(f"cu-{n}"), known="acknowledged by ann until 03:00 UTC") for n in (2, 3, 4)]
    first, second, third = merged([known, trouble("cu-5"), *others])
    assert (first.slot, second, third.where) == ("a-cu-5", known, "3 institutions: cu-2, cu-3, cu-4")


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        (0, "Nothing needs a person."),
        (1, "1 call waits until somebody has chosen the caller. "),
        (2, "2 calls wait until somebody has chosen the caller. "),
        (2, "Nothing else needs a person.</span>"),
    ],
)
def test_board_is_calm_only_as_far_as_it_is_true(choices: int, says: str) -> None:
    """Calls that wait for a choice need a person, and come before the news that nothing else does."""
    assert says in Renderer("/board", load_rules(None)).piece("alarms", [], choices)


def test_acknowledged_alarm_needs_no_person() -> None:
    """The count is of what nobody knows of yet. A viewer does not read who knows."""
    known = replace(
        trouble("cu-1"), known="acknowledged by ann until 03:00 UTC", last_error="status 503", is_incident=True
    )
    page = Renderer("/board", load_rules(None)).piece("alarms", [known])
    assert ("Needs a person" in page, ">Acknowledged</h2>" in page, "Last error: status 503." in page) == (
        False,
        True,
        True,
    )
    assert "Acknowledged by ann until 03:00 UTC." in page
    viewed = Renderer("/board", load_rules(None), sees_people=False).piece("alarms", [known])
    assert ("ann" in viewed.replace("meanwhile", ""), "/board/incidents" in viewed) == (False, False)
    page = Renderer("/board", load_rules(None)).piece("alarms", [trouble("cu-2"), trouble("cu-3"), known])
    assert "Needs a person (2)" in page


def test_incidents_on_the_page_of_a_call_do_not_say_that_the_call_needs_a_person() -> None:
    """There they only explain why nothing may happen; the call itself may be settled."""
    incident = replace(trouble("cu-1"), is_incident=True)
    page = Renderer("/board", load_rules(None)).piece("alarms", [incident], 0, False)
    assert ("Needs a person" in page, ">Incidents</h2>" in page) == (False, True)


def test_pages_write_every_day_with_its_year() -> None:
    """Pauses, outcomes and calls of last year are not taken for this year's."""
    templates = [path.read_text() for path in (Path(str(STATIC)).parent / "templates").glob("*.html")]
    formats = [each for text in templates for each in re.findall(r'strftime\("([^"]+)"\)', text)]
    assert formats, "the pages are read"
    assert [each for each in formats if "d" in each and "%Y" not in each] == []


def test_page_without_incidents_leads_to_the_calls_that_need_a_person() -> None:
    """It said that nothing was wrong, while the board showed a reject that was refused."""
    shown = {"incidents": [], "lengths": {}, "may_change": False, "is_of_all": False, "has_retried": False}
    page = Renderer("/board", load_rules(None)).page("incidents.html", now=NOW, visitor=None, problem="", **shown)
    assert 'There is no incident now. Calls that need a person are on the <a href="/board">board</a>.' in page
