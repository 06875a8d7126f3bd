"""The page of plots over a whole callkeeper in virtual time: what calls did, of one institution or of all."""

import html
import re
from dataclasses import replace as with_fields
from zoneinfo import ZoneInfo

import httpx
import pytest
from msgspec.structs import replace

from callkeeper.desk.access.rights import Role
from callkeeper.desk.board.board import Board
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.desk import BoardRig
from tests.harness.virtual_time import KEY, PHONE
from tests.signed_in import ANN, SignedIn

END = Happening(Kind.END, 60)
OTHER = "cu-2"


@pytest.fixture
async def rig(begun_now: None, board_rig: BoardRig) -> BoardRig:
    """Return a board over calls of two institutions that have all been counted."""
    board_rig.stage.world.add_institution(OTHER, "Second")
    board_rig.stage.call(Happening(Kind.GREEN, 5), END)
    board_rig.stage.call(END)
    await board_rig.begin_call(Happening(Kind.GREEN, 5), END, key=OTHER, run_s=100, is_pushed=False)
    await board_rig.counted()
    return board_rig


def numbers(page: str) -> dict[str, str]:
    """Return the total of each plot."""
    return dict(re.findall(r'<h2 id="plot-(\w+)">.*?<b>([^<]*)</b>', page, re.DOTALL))


async def test_plots_show_the_calls_of_one_or_of_all(rig: BoardRig) -> None:
    """Each total is that of the institution, or of all; its bars and the table have the same numbers."""
    whole, one = numbers(await rig.page("/plots")), numbers(await rig.page(f"/plots?institution={KEY}&span=week"))
    assert (whole["started"], whole["authenticated"], whole["undecided"]) == ("3", "1", "2")
    assert (one["started"], one["authenticated"], one["undecided"]) == ("2", "1", "1")
    page = html.unescape(await rig.page("/plots"))
    assert "<h1>Plots of all institutions</h1>" in page
    assert re.search(r"<title>[^<]*: [123] so far</title>", page)
    assert page.count("<tr>") >= 2


async def test_plots_hold_nothing_of_a_member(rig: BoardRig) -> None:
    """A viewer may see the page: it has counts, and neither names nor numbers nor ids of calls."""
    rig.visitor.person = replace(ANN, role=Role.VIEWER)
    page = await rig.page("/plots?span=month")
    for hidden in (PHONE, PHONE[-4:], "Ada", "p-1", *(call.voice_id for call in rig.stage.world.state.calls.values())):
        assert hidden not in page


async def test_plots_of_other_institutions_are_refused(rig: BoardRig) -> None:
    """Who is limited to some institutions sees their sums, is offered no other, and gets none by its address."""
    rig.visitor.person = replace(ANN, institutions=frozenset({OTHER}))
    page = await rig.page("/plots")
    assert numbers(page)["started"] == "1"
    assert KEY not in page
    await rig.page(f"/plots?institution={KEY}", 404)
    await rig.page("/plots?institution=no-such", 404)


async def test_plots_survive_any_address(rig: BoardRig) -> None:
    """A parameter that makes no sense is read as the nearest that does, or refused; it is never repeated as markup."""
    for query in ("span=year", "back=x", "back=99", "span=quarter&back=9", "institution=%3Cb%3E&span=%3Cb%3E"):
        answer = await rig.browser.get(f"/board/plots?{query}")
        assert answer.status_code == (404 if "institution" in query else 200), query
        assert "<b>&" not in answer.text
        assert "span=year" not in answer.text


async def test_plots_go_back_in_time(rig: BoardRig) -> None:
    """Earlier periods are a link away until the sums end; there is nothing later than now."""
    page = await rig.page("/plots?back=1")
    assert numbers(page)["started"] == "0"
    assert ">Later" in page
    assert ">Later" not in await rig.page("/plots")
    assert "Earlier</a>" not in await rig.page("/plots?span=quarter")


async def test_plots_are_in_the_institution_s_time_zone(rig: BoardRig) -> None:
    """The page states its zone: the one that the rules give the institution, else the one of all, else UTC."""
    assert "UTC." in await rig.page("/plots")
    rig.desk.book = with_fields(
        rig.desk.book, zones={KEY: ZoneInfo("America/Denver"), "": ZoneInfo("America/New_York")}
    )
    board = Board(rig.redis, rig.desk, log=rig.tools.log, now=rig.clock)
    rig.browser = httpx.AsyncClient(
        transport=httpx.ASGITransport(SignedIn(board.app(), rig.tokens)), base_url="https://desk"
    )
    for path, zone in ((f"?institution={KEY}", "Denver"), (f"?institution={OTHER}", "New_York"), ("", "New_York")):
        assert f"America/{zone}." in await rig.page(f"/plots{path}")
