"""Notes what tests in virtual time do to their calls, as scenarios: a plugin of pytest (`-p tests.corpus.suites`).

Only inputs are noted, at the seams that rigs and worlds have. What came of them in the test does not matter: a scenario
is played anew, with two workers, also if the test had one. What a test does in other ways is not noted.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from callkeeper_sandbox.service.faults import Faults
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.world import World as Place
from tests.corpus.drawing import eager, passing
from tests.corpus.scenario import Op, Scenario, digest
from tests.faults.world import World
from tests.harness.virtual_time import EAGER, Rig
from tests.sandbox_fixtures import Stage

FOLDER: Final = "CORPUS_SUITES"
"""The environment variable that names the folder for what is noted."""

SUITES: Final = ("tests/integration/whole_calls", "tests/integration/workers", "tests/faults/test_model.py")
"""Where calls are played in virtual time."""

MOST_S: Final = 300.0
"""How much virtual time of one test is noted, and what happens in it."""

LOOKED_AT_S: Final = 40.0
"""How much of one wait passes in parts that are short enough to look at."""

_WORDS: Final = {"opted_out": "opted-out", "resolved": "resolve", "withdrawn": "withdraw"}
_DESKS_OWN: Final = frozenset({"type", "said_at", "token", "wish", "number"})


class Noted:
    """What a test did at one stage."""

    def __init__(self) -> None:
        self.rules = ""
        self.variants: list[str] = []
        self.ops: list[Op] = []
        self.ids: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.passed_s = 0.0
        self.within = 0

    def add(self, *op: Any) -> None:
        """Note an input."""
        if not self.within and self.passed_s < MOST_S:
            self.ops.append(list(op))

    def about(self, name: str, call: Any, *more: Any) -> None:
        """Note an input about a call, if the call was begun here."""
        if call.voice_id in self.numbers:
            self.add(name, self.numbers[call.voice_id], *more)

    def passes(self, seconds: float) -> None:
        """Note that time passes."""
        if not self.within and self.passed_s < MOST_S:
            seconds = min(seconds, MOST_S - self.passed_s)
            looked_at_s = min(seconds, LOOKED_AT_S)
            self.ops += [*passing(looked_at_s), *([["run", seconds - looked_at_s]] if seconds > looked_at_s else [])]
            self.passed_s += seconds

    def begun(self, call: Any, script: Any, given: dict[str, Any]) -> None:
        """Note a call, under ids that are the same in every run."""
        n = len(self.numbers)
        self.numbers[call.voice_id] = n
        options = {name: given[name] for name in ("listed_after_s", "persons") if given.get(name)}
        for name, own in (("voice_id", f"v-{n}"), ("alternate_id", f"alt-{n}")):
            options[name] = self.ids[getattr(call, name)] = given.get(name) or own
        happenings = [[one.kind, one.after_s, one.text, one.person_id] for one in script]
        self.add("call", call.institution_key, call.phone_number, options, happenings)

    def said(self, call: Any, note: Any, *, by_alternate_id: bool = False) -> None:
        """Note what a person said."""
        fields = msgspec.to_builtins(note) if isinstance(note, msgspec.Struct) else {}
        if "operator" in fields:
            word = _WORDS.get(fields["type"], fields["type"])
            plain = {name: value for name, value in fields.items() if name not in _DESKS_OWN}
            self.about("say", call, word, plain, by_alternate_id)

    def faulty(self, fault: Any) -> None:
        """Note a fault."""
        fields = msgspec.to_builtins(fault)
        fields = {name: value for name, value in fields.items() if name not in {"id", "seen", "met"}}
        self.add("fault", fields | {"voice_id": self.ids.get(fault.voice_id, fault.voice_id)})

    def scenario(self, name: str) -> Scenario:
        """Return everything as a scenario."""
        return Scenario(name, self.rules, self.variants, self.ops)


_noted: dict[int, Noted] = {}
"""By the id of whatever a test holds: a stage, its faults, its sandbox, its place."""


def _watch(owner: type, name: str, note: Callable[..., Any]) -> None:
    """Let a method tell what it is called with. What it calls itself is not noted."""
    original = getattr(owner, name)

    @wraps(original)
    def watched(self: Any, *args: Any, **named: Any) -> Any:
        noted = _noted.get(id(getattr(self, "stage", self)))
        if noted is None:
            return original(self, *args, **named)
        if name != "call":
            note(noted, *args, **named)
        noted.within += 1
        try:
            answer = original(self, *args, **named)
        finally:
            noted.within -= 1
        if name == "call":
            noted.begun(answer, args, named)
        return _within(noted, answer) if hasattr(answer, "__await__") else answer

    setattr(owner, name, watched)


async def _within(noted: Noted, answer: Any) -> Any:
    noted.within += 1
    try:
        return await answer
    finally:
        noted.within -= 1


def _watch_making(owner: type, made: Callable[..., None]) -> None:
    original = owner.__init__  # type: ignore[misc]  # of the class that is given

    @wraps(original)
    def watched(self: Any, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        made(self)

    owner.__init__ = watched  # type: ignore[misc]


def _staged(stage: Stage) -> None:
    noted = Noted()
    for part in (stage, stage.sandbox, stage.sandbox.faults, stage.world):
        _noted[id(part)] = noted


def _rigged(rig: Rig) -> None:
    noted = _noted.get(id(rig.stage))
    if noted is not None and not noted.rules:
        noted.rules = eager(rig.book.text.decode()) if rig.book is EAGER else rig.book.text.decode()


def _peopled(world: World) -> None:
    """Forget whom a world has put into its stage: every world does."""
    _noted[id(world.stage)].ops.clear()
    _noted[id(world.stage)].variants = list(world.variants)


def _pushed(noted: Noted, call: Any, kind: str = "CallStart", **changes: Any) -> None:
    has_voice = changes.get("voice", changes.get("voice_id", call.voice_id) is not None)
    has_alternate = changes.get("alternate", changes.get("alternate_voice_id", call.alternate_id) is not None)
    noted.about("push", call, kind, has_voice, has_alternate)


def _chosen(noted: Noted, names: Any) -> None:
    if noted.numbers:
        noted.add("variants", list(names))
    elif not noted.within:
        noted.variants = list(names)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the seams."""
    _watch_making(Stage, _staged)
    _watch_making(Rig, _rigged)
    _watch_making(World, _peopled)
    _watch(Stage, "call", lambda *_: None)
    _watch(Stage, "happen", lambda noted, call, *what: noted.about("happen", call, *_three(what)))
    _watch(Stage, "advance", Noted.passes)
    _watch(Rig, "run", Noted.passes)
    _watch(World, "run", Noted.passes)
    _watch(Rig, "push", _pushed)
    _watch(World, "push", _pushed)
    _watch(Rig, "note", lambda noted, call, note, **_: noted.said(call, note))
    _watch(World, "hear", Noted.said)
    _watch(World, "hear_again", lambda noted, call, nth: noted.about("again", call, nth))
    _watch(World, "copy", lambda noted: noted.add("copy"))
    _watch(World, "roll_back", lambda noted: noted.add("roll_back"))
    _watch(World, "empty", lambda noted: noted.add("empty"))
    _watch(World, "thaw", lambda noted, n: noted.add("thaw", n))
    _watch(World, "set_clock_back", lambda noted, seconds: noted.add("clock", seconds))
    _watch(World, "plan_failure", lambda noted, n, one: noted.add("fail", n, one.failure, one.seam, one.crossings))
    _watch(Faults, "add", lambda noted, fault: noted.faulty(fault))
    _watch(Faults, "clear", lambda noted, *_: noted.add("calm"))
    _watch(Sandbox, "choose", _chosen)
    _watch(Place, "add_institution", lambda noted, key, *_, **more: noted.add("institution", key, _simple(more)))
    _watch(Place, "add_member", lambda noted, key, person, phones, **_: noted.add("member", key, person, list(phones)))


def _three(what: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*what, None, None)[:3]


def _simple(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in {"is_test_mode", "has_voice_auth", "owned"}}


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Keep what a test did, unless it began no call."""
    noted = {id(one): one for one in _noted.values() if one.numbers}.values()
    name = re.sub(r"[^A-Za-z0-9_.=-]+", "-", item.nodeid.removeprefix("tests/")).strip("-")
    scenarios = [one.scenario(f"{name}-{n}") for n, one in enumerate(noted)]
    if scenarios:
        place = Path(os.environ[FOLDER]) / f"{name[:150]}.json"
        place.write_bytes(msgspec.json.encode(scenarios))
    _noted.clear()


def scenarios_of(paths: Iterable[str], rules: dict[str, str], jobs: int) -> list[Scenario]:
    """Run tests, and return what they did to their calls, in the order of their names. Add rules that are new to ``rules``.

    Whether a test passes does not matter here.
    """
    names = {text: name for name, text in rules.items()}
    found: list[Scenario] = []
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "-p", "tests.corpus.suites", *paths]
        command += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        subprocess.run(command, env=os.environ | {FOLDER: folder}, stdout=sys.stderr, check=False)  # noqa: S603  (tests)
        for place in sorted(Path(folder).glob("*.json")):
            found += msgspec.json.decode(place.read_bytes(), type=list[Scenario])
    for scenario in found:
        name = names.setdefault(scenario.rules, f"rules {digest(scenario.rules)}")
        rules[name] = scenario.rules
    return [replace(one, rules=names[one.rules]) for one in found]
