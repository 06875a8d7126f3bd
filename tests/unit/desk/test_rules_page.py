"""The page of rules: hits beside rules."""

from collections import Counter

from callkeeper.calls.metrics.counting import field_name
from callkeeper.calls.metrics.rule_hits import hits_of
from callkeeper.calls.rules import load_rules, parse_rules
from callkeeper.calls.rules.file import parse_kept_rules
from callkeeper.desk.board.rules_page import rows_of


def day(*hits: tuple[str, str, str, int]) -> dict[bytes, bytes]:
    """Return the stored hits of a day: rule, stage, outcome, number."""
    return {field_name("decisions", labels).encode(): str(n).encode() for *labels, n in hits}


def test_hits_add_up_over_a_day_a_week_and_four() -> None:
    """Today counts in all three, a day before in two, one of last month in none; other fields are left out."""
    today = day(("a", "live", "enroll", 3), ("a", "live", "hold", 1), ("a", "shadow", "ask", 1)) | {b"new|field": b"7"}
    days = [today, *([{}] * 5), day(("a", "live", "enroll", 10)), day(("a", "live", "enroll", 100))]
    found = hits_of([*days, *([{}] * 19), day(("a", "live", "enroll", 1000)), day(("a", "live", "enroll", 5))])
    assert found["a", "live"].totals == (4, 14, 1114)
    assert found["a", "shadow"].totals == (1, 1, 1)
    assert found.keys() == {("a", "live"), ("a", "shadow")}


def test_rules_are_in_their_order_with_shadow_beside_live() -> None:
    """Every rule of the file is shown, with what else came of it; one that decided under earlier rules comes last."""
    book = load_rules("default")
    name = "verified at the desk"
    hits = hits_of([day((name, "live", "enroll", 5), (name, "live", "hold", 2), ("gone", "shadow", "ask", 1))])
    rows = rows_of(book, hits)
    assert [row.name for row in rows] == [*(rule.name for rule in book.rules), "gone"]
    [row] = [row for row in rows if row.name == name]
    assert (row.live.totals, row.came_of, row.asks_for) == ((7, 7, 7), "2 held by the law", "enroll with as_verified")
    assert (rows[-1].shadow.by_days[0], rows[-1].asks_for) == (Counter(ask=1), "not in these rules")
    assert rows_of(None, hits)[0].conditions == []


def test_condition_parsing_are_as_in_the_file() -> None:
    """Conditions read as they are written, then for whom and since when the rule holds."""
    text = load_rules("default").text.replace(
        b"when = { distrusted = true }",
        b'when = { distrusted = true }\ninstitutions = ["cu-2", "cu-1"]\nvalid_from = 2027-01-01T00:00:00Z',
    )
    [first, *_] = rows_of(parse_rules(text, name="mine"), {})
    assert first.conditions == ["distrusted = true", "only for cu-1, cu-2", "from 2027-01-01 00:00:00 UTC"]


def test_kept_rules_are_read_without_their_lists() -> None:
    """Lists are not kept, but rules that use them can be shown; a text that this release refuses is not a rule book."""
    when = b'when = { person = { in_list = "vip" } }\nthen = "ask"\nbecause = "A guest."'
    rule = b'[lists]\nvip = "vip.txt"\n[[rule]]\nname = "vip"\n' + when + b"\n"
    base = load_rules("default").text
    at = base.index(b"[[rule]]")
    kept = parse_kept_rules(base[:at] + rule + base[at:], name="mine", digest="0123")
    assert kept is not None
    assert (kept.rules[0].name, kept.digest) == ("vip", "0123")
    assert parse_kept_rules(b"[[rule]", name="mine", digest="1") is None
    assert parse_kept_rules(b"[no]\nsuch = 1", name="mine", digest="1") is None
