"""What the board's stream tells: all to whoever comes, then only what is new."""

from datetime import timedelta
from typing import Any

import msgspec

from desk.board.live import News
from desk.board.painter import View
from tests.unit.calls.specimens import NOW


def told(event: bytes | None) -> Any:
    """Return the data of an event."""
    assert event is not None
    name, _, data = event.decode().removesuffix("\n\n").partition("\ndata: ")
    assert name == "event: news"
    return msgspec.json.decode(data)


def test_news_tell_everything_once() -> None:
    """Who connects, or connects again after a restart, is told how all things are; nothing has to be remembered."""
    view = View(NOW, {"status": "<p>1</p>", "c-1": "<li>a</li>"}, {"rows": ("c-1",)})
    first = told(News().of(view))
    assert first["html"] == view.html
    assert first["order"] == {"rows": ["c-1"]}
    assert first["now"] == NOW.timestamp() * 1000


def test_news_tell_only_what_changed() -> None:
    """Of two thousand calls the one that changed is sent, and an order only where it is another."""
    html = {f"c-{n}": f"<li>{n}</li>" for n in range(2000)}
    news, order = News(), {"rows": tuple(html)}
    news.of(View(NOW, html, order))
    assert news.of(View(NOW + timedelta(seconds=1), dict(html), dict(order))) is None
    changed = told(news.of(View(NOW, {**html, "c-7": "<li>seven</li>"}, order)))
    assert (changed["html"], changed["order"]) == ({"c-7": "<li>seven</li>"}, {})
    gone = {slot: markup for slot, markup in html.items() if slot != "c-7"}
    assert told(news.of(View(NOW, gone, {"rows": tuple(gone)})))["html"] == {}


def test_news_leave_a_frame_alone_whose_parts_are_told() -> None:
    """A group is sent once: its head and its lines have places of their own."""
    news = News()
    news.of(View(NOW, {"g": "<section>1</section>"}, {}, {"g": "once"}))
    assert news.of(View(NOW, {"g": "<section>2</section>"}, {}, {"g": "once"})) is None


def test_news_of_a_call_that_came_back_are_sent_again() -> None:
    """A line that was folded away and is shown again is sent: the page has dropped it."""
    news, view = News(), View(NOW, {"c-1": "<li>a</li>"}, {"rows": ("c-1",)})
    news.of(view)
    news.of(View(NOW, {}, {"rows": ()}))
    assert told(news.of(view))["html"] == view.html
