"""Shadow rules with real processes: two stacks get the same calls, and one has three shadow rules more."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from callkeeper.calls.rules.file import read_rules_text
from tests.harness.processes import Stack, end, stack

SHADOWS = """
[[rule]]
name = "reject another voice on a risky device"
when = { voice_mismatch = true, high_risk_device = true }
then = "reject"
because = "Would we?"
stage = "shadow"

[[rule]]
name = "enroll whom the service verified by questions"
when = { verified = true, green = false }
then = "enroll"
validation_type = "Other"
because = "Would we?"
stage = "shadow"

[[rule]]
name = "hold the red"
when = { red = true }
then = "hold"
because = "Would we?"
stage = "shadow"
"""
PLOTS = (("green",), ("red",), ("mfa_validated",), ("answered_questions",), ("mismatch", "high_risk_device"))
SEED = 7


def scripts() -> list[tuple[dict[str, object], ...]]:
    """Return the script of each call: every plot twice, with order and times drawn from the seed."""
    chance = Random(SEED)  # noqa: S311  (a scenario, no secret)
    plots = [*PLOTS, *PLOTS]
    chance.shuffle(plots)
    return [
        (*({"kind": kind, "after_s": round(chance.uniform(2.0, 5.0), 1)} for kind in plot), end(14.0)) for plot in plots
    ]


def running(data: Path, rules: str) -> AbstractContextManager[Stack]:
    """Run a stack with a rules file."""
    environ = {"CALLKEEPER_RULES": rules}
    return stack(data, workers=1, seed=SEED, web_environ=environ, worker_environ=environ)


class Sent(NamedTuple):
    """The effects of a call that the sandbox counted, and the reason of its settling."""

    assigns: int
    enrolls: int
    rejects: int
    reason: str | None


def sent(stack: Stack, calls: Sequence[dict[str, Any]]) -> list[Sent]:
    """Wait until each call is settled, and return what was sent for it."""
    seen = []
    for call in calls:
        reason, arrived = stack.settled(call, 60).life.reason, stack.arrived(call)
        seen.append(Sent(arrived.get("assign", 0), arrived.get("enroll", 0), arrived.get("reject_voice", 0), reason))
    return seen


def test_shadow_rules_change_nothing_that_is_sent(tmp_path: Path) -> None:
    """With and without shadow rules, each call has the same assigns, enrolls, rejects and reason."""
    shadowed_rules = tmp_path / "shadowed.toml"
    head, first, rest = read_rules_text("demo").decode().partition("[[rule]]")
    shadowed_rules.write_text(head + SHADOWS.lstrip() + "\n" + first + rest)
    with running(tmp_path / "plain", "demo") as plain, running(tmp_path / "shadowed", str(shadowed_rules)) as shadowed:
        plain_calls, shadowed_calls = ([stack.call(*script) for script in scripts()] for stack in (plain, shadowed))
        without = sent(plain, plain_calls)
        assert sent(shadowed, shadowed_calls) == without
        assert sum(row.enrolls for row in without) == 4
        assert sum(row.rejects for row in without) == 2
        decisions = [tried for call in shadowed_calls for line in shadowed.trail(call) for tried in line.tried]
        assert len({tried.rule for tried in decisions if tried.result == "shadowed"}) == 3
