"""The recorder: scenarios played twice come to the same, and what differs is found and named (`make corpus`)."""

from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path

from msgspec.structs import replace

from tests.corpus.comparing import cause_of
from tests.corpus.core import shipped_books
from tests.corpus.drawing import books, draw
from tests.corpus.playing import play
from tests.corpus.recording import Recording
from tests.corpus.scenario import Corpus, Played, Scenario
from tests.corpus.suites import scenarios_of

RULES = books(shipped_books())

VERIFIED = Scenario(
    "verified",
    "default",
    [],
    [
        ["call", "cu-1", "5550100001", {"voice_id": "v-0", "alternate_id": "alt-0"}, [["end", 12.0, None, None]]],
        ["push", 0, "CallStart", True, True],
        ["run", 3.0],
        ["say", 0, "verified", {"operator": "ann", "person_id": "p-1", "validation_type": "Other"}],
        *[["run", 4.0]] * 10,
    ],
)
"""A member calls, is assigned, verified at the desk and enrolled."""


def _played(scenario: Scenario, rules: str = "") -> Played:
    return play(scenario, RULES[rules or scenario.rules])


def test_scenario_played_twice_comes_to_the_same() -> None:
    """Nothing of what is recorded depends on chance: a drawn scenario with failures, and a plain one."""
    for scenario in (VERIFIED, draw(8)):
        assert _played(scenario) == _played(scenario)


def test_what_is_recorded_tells_the_call() -> None:
    """Requests in their order, the ledger, what became of the word, and the messages to other systems."""
    [call] = _played(VERIFIED).calls
    sent = [request.what.split()[0] for request in call.requests]
    assert [what for what in sent if what not in {"read", "check"}] == ["assign", "enroll"]
    known = {name: value for moment in call.moments for name, value in moment.changed.items()}
    assert known["ledger.enroll"] == "applied p-1 Other"
    assert known["told.action 01"] == "done"
    assert [name.split(".")[-1] for name in call.told["outcomes"]] == ["enrolled", "settled"]


def test_difference_is_named_by_its_cause() -> None:
    """Under rules that only watch, the first thing that differs is that nobody is assigned."""
    [old], [new] = _played(VERIFIED).calls, _played(VERIFIED, "watch-only").calls
    assert cause_of(old, old) is None
    cause = cause_of(old, new)
    assert cause is not None
    assert cause.endswith("ledger assign: applied p-# -> none")


def test_suite_gives_its_calls_as_scenarios() -> None:
    """What a test in virtual time does at the seams is noted, and can be played: the example of the harness."""
    rules = dict(RULES)
    [noted] = scenarios_of(["tests/integration/whole_calls/test_harness_example.py"], rules, 1)
    assert rules == RULES
    assert [op[:2] for op in noted.ops[:3]] == [["call", "cu-1"], ["push", 0], ["run", 4.0]]
    [call] = _played(noted).calls
    assert [request.what.split()[0] for request in call.requests].count("assign") == 1


def test_corpus_is_kept_without_duplicates_and_read_back(tmp_path: Path) -> None:
    """A scenario that met the same as an earlier one is left out, and the same scenarios give the same files."""
    again = replace(VERIFIED, name="again")
    other = replace(VERIFIED, name="other", rules="watch-only")
    kept = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        corpus = Corpus(tmp_path / name)
        recording = Recording(2, until_s=inf)
        corpus.write(recording.of(_each, [VERIFIED, again, other]))
        assert recording.duplicates == 1
        kept.append((list(corpus.recorded()), [path.read_bytes() for path in sorted(corpus.folder.iterdir())]))
    assert kept[0] == kept[1]
    assert [scenario for scenario, _ in kept[0][0]] == [VERIFIED, other]


def _each(scenarios: Iterable[Scenario]) -> Iterator[tuple[Scenario, Played]]:
    return ((scenario, _played(scenario)) for scenario in scenarios)
