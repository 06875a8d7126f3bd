"""Lists of persons and numbers, the hour and the weekday: read beside the rules, asked for by rules, never recorded."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from callkeeper.calls.facts import Facts
from callkeeper.calls.person_lists import NamedLists, Numbers
from callkeeper.calls.record import Call, Candidate, Names, Seen
from callkeeper.calls.rules import RuleBook, RulesError, load_rules
from callkeeper.calls.rules.cases import parse_cases, try_cases
from callkeeper.calls.rules.diff import changes
from callkeeper.calls.rules.matching import judge, next_turn, table
from tests.records import facts_of_record

HEAD = "[checks]\nat = [10, 20, 40]\n"
HOLD = '[[rule]]\nname = "otherwise"\nthen = "hold"\nbecause = "Nothing to do."\n'


VIP = '[lists]\nvip = "vip.txt"\n'


def rule(when: str, name: str = "mine", then: str = "ask") -> str:
    """Return a rule as it is written."""
    return f'[[rule]]\nname = "{name}"\nwhen = {when}\nthen = "{then}"\nbecause = "Our reason."\n'


def book(folder: Path, text: str, **lists: str) -> RuleBook:
    """Read rules from a folder with these lists beside them."""
    for name, entries in lists.items():
        (folder / f"{name}.txt").write_text(entries, encoding="utf-8")
    (folder / "rules.toml").write_text(HEAD + text + HOLD, encoding="utf-8")
    return load_rules(folder / "rules.toml")


def faults(folder: Path, text: str) -> str:
    """Return what is wrong with rules."""
    with pytest.raises(RulesError) as caught:
        book(folder, text)
    return str(caught.value)


CALL = Call(
    institution_key="cu-1",
    voice_id="v-1",
    seen=Seen(
        person_id="M-17",
        candidates=(
            Candidate(person_id="M-17", person_type="Joint"),
            Candidate(person_id="M-18", person_type="Primary"),
        ),
    ),
    names=Names(phone_number="+1 (900) 555-0100"),
)

NIGHT = datetime(2026, 12, 1, 4, 30, tzinfo=UTC)
"""22:30 on a Monday in Chicago, 4:30 on a Tuesday in UTC."""


@pytest.mark.parametrize(
    ("when", "matches"),
    [
        ('{ person = { in_list = "vip" } }', True),
        ('{ person = { in_list = "staff" } }', False),
        ('{ person = { not = { in_list = "staff" } } }', True),
        ('{ number = { in_list = "premium" } }', True),
        ('{ number = { in_list = "whole" } }', True),
        ('{ number = { like = "+1900*" } }', True),
        ('{ number = { like = "+1800*" } }', False),
        ('{ person_type = "Joint" }', True),
        ('{ person_type = { in = ["Primary"] } }', False),
    ],
)
def test_rules_ask_for_lists_and_the_persons_type(tmp_path: Path, when: str, *, matches: bool) -> None:
    """A rule matches a call whose member or number is in the list, however the number is written."""
    lists = 'vip = "vip.txt"\nstaff = "staff.txt"\npremium = "premium.txt"\nwhole = "whole.txt"\n'
    files = {"vip": "M-17 # since 2020\n", "staff": "\n", "premium": "+1 900*\n", "whole": "1-900-555-0100\n"}
    rules = book(tmp_path, f"[lists]\n{lists}{rule(when)}", **files)
    facts = facts_of_record(CALL, rules.policies, NIGHT, lists=rules.lists)
    assert (judge(facts, rules, "cu-1").rule == "mine") is matches
    assert (table(facts, rules, "cu-1")[0].result == "matched") is matches


def test_trails_hold_the_names_of_lists_only(tmp_path: Path) -> None:
    """Neither a person id from a list nor a number is written with the facts; what is written can be read again."""
    rules = book(
        tmp_path,
        VIP + rule("{ person = { in_list = 'vip' }, number = { like = '+1900*' } }"),
        vip="M-17\nM-18\n",
    )
    facts = facts_of_record(CALL, rules.policies, NIGHT, lists=rules.lists)
    written = facts.as_dict()
    assert (written["person"], written["number"]) == ("vip", "+1900*")
    assert Facts.from_dict(written).person == ("vip",)
    assert "M-1" not in str(written)
    assert "555" not in str(written)


def test_digest_changes_with_a_list(tmp_path: Path) -> None:
    """Another list is another rule book: the board and every trail show it. A diff says which list."""
    text = VIP + rule("{ person = { in_list = 'vip' } }")
    one, other = book(tmp_path, text, vip="M-1\n"), book(tmp_path, text, vip="M-2\n")
    assert one.digest != other.digest
    assert changes(one, other) == ["[lists] vip: other persons"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[lists]\nvip = "nowhere.txt"\n', "'nowhere.txt' cannot be read"),
        ('[lists]\nvip = "../vip.txt"\n', "vip cannot be '../vip.txt'"),
        ('[lists]\nvip = "/etc/passwd"\n', "vip cannot be '/etc/passwd'"),
        ('[lists]\nVIP = "vip.txt"\n', "'VIP' cannot be the name of a list"),
        (rule("{ person = { in_list = 'vpi' } }"), "there is no list 'vpi'"),
        (rule("{ person = { like = '1*' } }"), "person has no condition 'like'"),
        (rule("{ number = { like = '+15550100' } }"), "like cannot be '+15550100'"),
        (rule('{ person = "M-17" }'), 'write { in_list = "M-17" }'),
        (rule("{ hour = 3 }"), "hour needs the time zone of every institution"),
        (rule("{ hour = 24 }"), "hour is never 24"),
        ('[[zone]]\nname = "Mars/Olympus"\n', "there is no time zone 'Mars/Olympus'"),
        ('[[zone]]\nname = "UTC"\n[[zone]]\nname = "UTC"\n', "every institution has two zones"),
        (rule('{ person = { in_list = "vip" } }', then="reject"), "it rejects on a single piece of evidence"),
    ],
)
def test_faults_of_lists_and_zones_are_named(tmp_path: Path, text: str, problem: str) -> None:
    """What cannot be read or is misspelt stops the process and says where."""
    assert problem in faults(tmp_path, text)


def test_zone_is_needed_for_each_institution_of_the_rule(tmp_path: Path) -> None:
    """A zone for another institution does not help: an unknown hour would meet the opposite of a condition."""
    zone = '[[zone]]\nname = "America/Denver"\ninstitutions = ["cu-2"]\n'
    assert "hour needs the time zone of every institution" in faults(tmp_path, zone + rule("{ hour = 3 }"))
    mine = rule("{ hour = 3 }").replace("then", 'institutions = ["cu-2"]\nthen')
    assert set(book(tmp_path, zone + mine).zones) == {"cu-2"}


@pytest.mark.parametrize(
    ("institution", "hour", "weekday"), [("cu-1", 22, "Monday"), ("cu-2", 21, "Monday"), ("cu-3", 22, "Monday")]
)
def test_hour_and_weekday_are_those_of_the_institution(
    tmp_path: Path, institution: str, hour: int, weekday: str
) -> None:
    """The institution's own zone counts, else that of all others."""
    zones = '[[zone]]\nname = "America/Chicago"\n[[zone]]\nname = "America/Denver"\ninstitutions = ["cu-2"]\n'
    rules = book(tmp_path, zones + rule(f'{{ hour = {hour}, weekday = "{weekday}" }}'))
    facts = facts_of_record(CALL, rules.policies, NIGHT)
    assert judge(facts, rules, institution).rule == "mine"
    assert judge(replace_hour(facts), rules, institution).rule == "otherwise"


def replace_hour(facts: Facts) -> Facts:
    """Return the facts of a case that names another hour."""
    return Facts.from_dict({**facts.as_dict(), "hour": 12}, at=facts.at)


def test_call_is_decided_again_when_the_hour_changes(tmp_path: Path) -> None:
    """The next turn is the next full hour of the institution, also where zones differ by half hours."""
    rules = book(tmp_path, '[[zone]]\nname = "Asia/Kolkata"\n' + rule("{ hour = { at_least = 22 } }"))
    assert next_turn(rules, {}, NIGHT, "cu-1") == datetime(2026, 12, 1, 5, 30, tzinfo=UTC)
    assert next_turn(rules, {}, NIGHT.replace(minute=10, second=1), "cu-1") == NIGHT
    assert next_turn(rules, {}, NIGHT, None) is None
    assert next_turn(replace(rules, rules=rules.rules[1:]), {}, NIGHT, "cu-1") is None


def test_seconds_since_the_verification_turn_a_rule(tmp_path: Path) -> None:
    """A rule about the seconds since the verification takes effect at its instant."""
    rules = book(tmp_path, rule("{ verified_s = { at_least = 45 } }"))
    assert next_turn(rules, {"verified_s": NIGHT}, NIGHT, "cu-1") == NIGHT.replace(second=45)


def test_cases_name_lists(tmp_path: Path) -> None:
    """A case says in which lists the member and the number are, and which hour it is."""
    text = VIP + '[[zone]]\nname = "UTC"\n' + rule("{ person = { in_list = 'vip' }, hour = { at_least = 22 } }")
    rules = book(tmp_path, text, vip="M-1\n")
    case = '[[case]]\nname = "{}"\nfacts = {{ person = {{ in_list = "vip" }}, hour = {} }}\nexpect = "{}"\n'
    cases = parse_cases(
        ('rules = "rules.toml"\n' + case.format("night", 23, "ask") + case.format("noon", 12, "hold")).encode(),
        name="cases.toml",
    )
    assert [result.failures for result in try_cases(cases, rules)] == [(), ()]


def test_withheld_number_is_in_no_list() -> None:
    """A number without digits matches nothing, not even a pattern for all numbers."""
    lists = NamedLists(numbers={"all": Numbers.of(["*"]), "one": Numbers.of([""])})
    assert [lists.of_number(number) for number in (None, "", "Anonymous", "*")] == [()] * 4
    assert lists.of_number("+15550100") == ("all",)
