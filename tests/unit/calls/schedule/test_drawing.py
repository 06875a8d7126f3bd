"""Laws of the drawings: every check is in them, and the SVG is one."""

from xml.etree import ElementTree

from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.drawing import draw_svg, draw_text
from callkeeper.calls.schedule.model import prior

SHIPPED = load_rules(None).schedule
SVG = "{http://www.w3.org/2000/svg}"


def test_text_has_a_row_for_every_check_and_the_lag() -> None:
    """Time, gap, F and S of every check, and what the whole costs."""
    lines = draw_text(prior(), SHIPPED.at_s).splitlines()
    assert len(lines) == 1 + len(SHIPPED.at_s) + 1
    assert all(f"{t:.2f} s" in line for t, line in zip(SHIPPED.at_s, lines[1:-1], strict=True))
    assert lines[-1].startswith("mean lag 2.92 s")


def test_svg_is_well_formed_and_marks_every_check() -> None:
    """The document can be parsed, holds both curves and one mark a check, and its title cannot break out."""
    root = ElementTree.fromstring(draw_svg(prior(), SHIPPED.at_s, "<b> & c"))  # noqa: S314  (our own text)
    marks = [mark.findtext(f"{SVG}title") for mark in root.iter(f"{SVG}line") if mark.get("class") == "check"]
    assert marks == [f"{t:g} s" for t in SHIPPED.at_s]
    assert {line.get("class") for line in root.iter(f"{SVG}polyline")} == {"known", "alive"}
    assert root.findtext(f"{SVG}text") == "<b> & c"
