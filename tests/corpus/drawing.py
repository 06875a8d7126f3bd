"""Draws scenarios from seeds: what callers, the service, people, processes and Redis may do, in random order.

A scenario is a pure function of `EDITION`, the seed and the names of the rules. The corpus keeps what was drawn all the
same, so that a change here changes no corpus.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.faults import Action
from callkeeper_sandbox.service.state import Kind
from tests.corpus.scenario import Op, Scenario
from tests.covering import calmed, covering_sets
from tests.faults.seams import Failure, Seam

T = TypeVar("T")

EDITION: Final = 1
"""Part of every seed: another edition draws other scenarios."""

KEY, TEST_MODE, FOREIGN, NOWHERE = "cu-1", "cu-test", "cu-foreign", "cu-nowhere"
ONE, TWO, NOBODY = "5550100001", "5550100002", "5550100003"
"""The numbers of one member, of two, and of nobody."""

LONGEST_RUN_S: Final = 4.0
"""The longest time that passes at once. After it is looked what is known."""

RULES: Final = {"default": 30, "eager": 25, "demo": 20, "quick": 15, "odd": 15, "manual": 8, "watch-only": 4}
"""How often each text of rules is drawn."""

SIGNS: Final = {
    Kind.GREEN: 3,
    Kind.RED: 2,
    Kind.MISMATCH: 3,
    Kind.POLICY: 2,
    Kind.HIGH_RISK: 2,
    Kind.PENDING: 2,
    Kind.ANSWERED_QUESTIONS: 5,
    Kind.MFA_VALIDATED: 6,
    Kind.SENT_SMS: 1,
    Kind.OPT_OUT: 2,
    Kind.OPT_IN: 2,
    Kind.VIEWED: 2,
    Kind.STATUS: 1,
    Kind.CLAIMED: 3,
    Kind.ENROLLED: 2,
    Kind.REJECTED: 1,
    Kind.UNENROLLED: 1,
    Kind.REJECTED_BY_RULE: 1,
    Kind.CASE: 2,
    Kind.CASE_ELSEWHERE: 1,
    Kind.ERROR: 1,
}
"""How often each of what happens at the service is drawn."""

TEXTS: Final[Mapping[Kind, Sequence[str]]] = {
    Kind.CASE: ["DeterminedFraud", "NeedsReview", "InReview", "FalsePositive"],
    Kind.CASE_ELSEWHERE: ["DeterminedFraud", "NeedsReview", "FalsePositive"],
    Kind.STATUS: ["Voice Pending", "CheckRiskAndAuthentication", "Something Else", "FullAuthentication"],
    Kind.POLICY: ["Yellow Review", "Zebra Device Policy", "Green Device", "Red Device"],
    Kind.GREEN: ["Green Voice Authentication", "Green Device"],
}

WORDS: Final = {"verified": 9, "distrusted": 3, "assign": 3, "withdraw": 3, "check": 2, "opted-out": 2, "resolve": 4}
"""How often each word of a person is drawn."""

VALIDATIONS: Final = ["KnowledgeBasedAuth", "OneTimePasswordAuth", "Other"]
PERSONS: Final = {ONE: ["p-1"] * 7 + ["p-2"], TWO: ["p-2", "p-2", "p-2", "p-3"], NOBODY: ["p-1", "p-3"]}
"""Whom people name, by the number of the caller."""

TARGETS: Final = [
    *(Operation.ASSIGN, Operation.ENROLL, Operation.ENROLL, Operation.REJECT_VOICE, Operation.REJECT_VOICE),
    *(Operation.CHECK, Operation.CHECK, Operation.READ, Operation.READ, Operation.QUEUE),
]
ACTIONS: Final = [
    *(Action.RESET, Action.DROP, Action.ANSWER, Action.ANSWER, Action.HTML, Action.CUT, Action.EMPTY),
    *(Action.REFUSED, Action.REFUSED, Action.UNAUTHORIZED, Action.FOREIGN),
]

_SETS: Final = [[name for name in calmed(names) if "slow" not in name] for names in covering_sets()]
_FINAL: Final = re.compile(
    r"^when\.final_analysis = true\n|, final_analysis = true|final_analysis = true, ", re.MULTILINE
)


def books(shipped: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of rules: those that come with the software, the odd ones, and an eager one."""
    odd = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "rules").glob("*.toml"))}
    return {**shipped, **odd, "eager": eager(shipped["default"])}


def eager(cautious: str) -> str:
    """Return cautious rules as they are without waiting for the final analysis: they enroll in the call."""
    return _FINAL.sub("", cautious)


def draw(seed: int) -> Scenario:
    """Draw a scenario. One in two has no failures, one in four those of the service, one in four also those of ours."""
    return _Drawing(seed).scenario()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self.name = f"seed-{seed}"
        self.random = Random(f"{EDITION}/{seed}")  # noqa: S311  (repeatable, not secret)
        self.timed: list[tuple[float, Op]] = []
        self.lasts_s = self.random.choice([30.0, 45.0, 60.0])
        count = self.random.choice([2, 3, 3, 4, 4, 5, 6])
        self.starts = [0.5, *sorted(round(self.random.uniform(0.5, self.lasts_s * 0.7), 2) for _ in range(count - 1))]
        self.ends_s = 0.0
        self.persons = PERSONS[ONE]
        self.is_alike = self.random.random() < 0.6
        """All calls are from one member's number: earlier calls, and callers at the same time."""

    def scenario(self) -> Scenario:
        draw = self.random
        rules = self.weighted(RULES)
        names = draw.choice(_SETS)
        variants = sorted(draw.sample(names, min(len(names), draw.choice([0, 0, 0, 1, 2, 4, 40]))))
        for n, start_s in enumerate(self.starts):
            self.call(n, start_s)
        kind = draw.choice(["calm", "calm", "faults", "storm"])
        if kind != "calm":
            self.several(3, self.fault)
        if kind == "storm":
            self.several(4, self.storm)
        if draw.random() < 0.05:
            at_s = draw.uniform(2, self.lasts_s)
            self.at(at_s, "pause", draw.choice(["all", "effects"]))
            self.at(at_s + draw.uniform(5, 40), "pause", "")
        if draw.random() < 0.05:
            self.foreign()
        return Scenario(self.name, rules, variants, self.in_order(is_calm=kind == "calm"))

    # One call

    def call(self, n: int, start_s: float) -> None:
        """Draw a call: what happens to it, its end, its pushes, what people say of it."""
        draw = self.random
        longest_s = draw.choice([12, 12, 40, 40, 40, 40, 60, 60, 60, 250])
        length_s = draw.uniform(longest_s / 6, longest_s)
        number = ONE if self.is_alike or draw.random() < 0.4 else draw.choice([TWO, TWO, NOBODY])
        self.persons = PERSONS[number]
        self.ends_s = max(self.ends_s, start_s + length_s)
        key = TEST_MODE if draw.random() < 0.04 else KEY
        ids = [f"v-{n}", f"alt-{n}"] if draw.random() < 0.8 else [self.guid(), self.guid()]
        options: dict[str, Any] = {"voice_id": ids[0], "alternate_id": ids[1]}
        if draw.random() < 0.2:
            options["listed_after_s"] = draw.choice([1.0, 3.0, 12.0, 20.0])
        script = sorted(
            (self.sign(length_s) for _ in range(draw.choice([0, 1, 1, 2, 2, 3, 4]))), key=lambda one: one[1]
        )
        self.at(start_s, "call", key, number, options, [*script, [Kind.END, round(length_s, 2)]])
        self.pushes(n, start_s, start_s + length_s)
        for _ in range(draw.choice([0, 0, 1, 1, 1, 2, 3])):
            self.word(n, start_s, length_s)
        if draw.random() < 0.15:
            kind = self.weighted(SIGNS)
            self.at(
                start_s + draw.uniform(1, length_s + 30), "happen", n, kind, self.text(kind), draw.choice(self.persons)
            )

    def sign(self, length_s: float) -> list[Any]:
        kind, person = self.weighted(SIGNS), self.random.choice([None, None, *self.persons])
        return [kind, round(self.random.uniform(0.5, length_s * 1.1), 2), self.text(kind), person]

    def text(self, kind: Kind) -> str | None:
        return self.random.choice(TEXTS[kind]) if kind in TEXTS else None

    def pushes(self, n: int, start_s: float, end_s: float) -> None:
        draw = self.random
        for at_s, kind, share in ((start_s, "CallStart", 0.85), (end_s, "CallEnd", 0.7)):
            for _ in range(draw.choice([1, 1, 1, 2]) if draw.random() < share else 0):
                ids = draw.choice([(True, True), (True, True), (True, True), (True, False), (False, True)])
                self.at(at_s + draw.choice([0.1, 0.3, 2.0, 6.0]), "push", n, kind, *ids)

    def word(self, n: int, start_s: float, length_s: float) -> None:
        draw = self.random
        word, at_s = self.weighted(WORDS), start_s + draw.uniform(0.5, length_s + draw.choice([0, 5, 25]))
        fields: dict[str, Any] = {"operator": draw.choice(["ann", "bob"])}
        if word in {"verified", "assign"}:
            fields["person_id"] = draw.choice(self.persons)
        if word == "verified":
            fields["validation_type"] = draw.choice(VALIDATIONS)
        if word == "withdraw":
            fields["what"] = draw.choice(["assign", "verified", "distrusted"])
            self.at(
                max(start_s, at_s - draw.uniform(0.2, 9)), "say", n, fields["what"], self.said(fields["what"]), False
            )
        if word == "resolve":
            fields |= {"applied": draw.random() < 0.5, "effect": draw.choice([None, None, "enroll", "reject"])}
        self.at(at_s, "say", n, word, fields, draw.random() < 0.15)
        if draw.random() < 0.08:
            self.at(at_s + draw.uniform(0.1, 9), "again", n, draw.randrange(3))

    def said(self, word: str) -> dict[str, Any]:
        more = {"assign": {"person_id": "p-1"}, "verified": {"person_id": "p-1", "validation_type": "Other"}}
        return {"operator": "ann", **more.get(word, {})}

    # Failures, and what is about no call

    def fault(self, at_s: float) -> None:
        """Draw a fault of the service, or a mix-up of two calls."""
        draw = self.random
        if draw.random() < 0.08:
            n, other = draw.sample(range(len(self.starts)), 2)
            began_s = max(self.starts[n], self.starts[other])
            self.at(began_s + draw.uniform(0.1, 20), "mix", n, other, draw.random() < 0.3, draw.choice([1, 3, 1000]))
            return
        fault = {"target": draw.choice(TARGETS), "action": draw.choice(ACTIONS), "skip": draw.choice([0, 0, 1, 3])}
        times = draw.choice([1, 1, 1, 2, 3, 8])
        self.at(at_s, "fault", {**fault, "applied": draw.random() < 0.5, "times": times})

    def storm(self, at_s: float) -> None:
        """Draw a failure of a worker or of Redis, or a jump of its clock."""
        draw = self.random
        match draw.choice(["fail", "fail", "fail", "fail", "lose", "lose", "empty", "clock"]):
            case "fail":
                n, failure = draw.randrange(2), draw.choice(list(Failure))
                seam = Seam.REDIS if failure is Failure.TWICE else draw.choice(list(Seam))
                self.at(at_s, "fail", n, failure, seam, draw.randint(1, 12))
                if failure.startswith("freeze"):
                    self.at(at_s + draw.choice([1.0, 6.0, 15.0]), "thaw", n)
            case "lose":
                self.at(at_s, "copy")
                self.at(at_s + draw.choice([0.3, 1.0, 4.0, 12.0]), "roll_back")
            case "empty":
                self.at(at_s, "empty")
            case _:
                self.at(at_s, "clock", draw.choice([10.0, 600.0, -4.0, -12.0, -40.0]))

    def foreign(self) -> None:
        at_s, kind = self.random.uniform(0, self.lasts_s), self.random.choice(["CallStart", "CallEnd"])
        for key, voice_id, is_test in ((KEY, "sample", True), (FOREIGN, "v-0", False), (NOWHERE, "v-0", False)):
            self.at(at_s, "foreign", kind, key, voice_id, is_test)
        self.at(at_s, "foreign", kind, KEY, "ghost", False)

    # Time

    def at(self, at_s: float, *op: Any) -> None:
        """Note an input."""
        self.timed.append((round(at_s, 2), list(op)))

    def several(self, most: int, one: Any) -> None:
        for _ in range(self.random.randint(1, most)):
            one(self.random.uniform(0.0, self.lasts_s))

    def in_order(self, *, is_calm: bool) -> list[Op]:
        """Return all inputs with the time between them. At the end faults are lifted, and all calls can be settled."""
        ops: list[Op] = []
        now_s = 0.0
        for at_s, op in sorted(self.timed, key=lambda one: one[0]):
            ops += [*passing(at_s - now_s), op]
            now_s = max(now_s, at_s)
        ending = [] if is_calm else [["calm"]]
        until_end = passing(max(0.0, self.ends_s - now_s))
        return [*ops, *until_end, *ending, *passing(self.random.choice([22.0, 22.0, 30.0, 60.0]))]

    def weighted(self, weights: Mapping[T, int]) -> T:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def guid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))


def passing(seconds: float) -> list[Op]:
    """Return time that passes, in parts that are short enough to look at."""
    whole, rest = divmod(round(seconds, 2), LONGEST_RUN_S)
    return [["run", LONGEST_RUN_S]] * int(whole) + ([["run", round(rest, 2)]] if rest > 0.005 else [])
