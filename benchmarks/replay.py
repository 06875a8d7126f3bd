"""How long a replay of 10,000 recorded calls under other rules takes."""

import statistics
import time
from dataclasses import replace

from benchmarks.answer import Answer, Table
from benchmarks.effort import Effort
from callkeeper.calls.rules import load_rules
from callkeeper.calls.rules.replay import replay as replay_calls
from callkeeper.calls.trail import encode_recorded, parse_recordings
from tests.unit.calls.rules.recordings import record

CALLS = 10_000
ROUNDS = 5
Moment = dict[str, str | bool | int | None]

LIMIT_S = 5.0
"""How many seconds a risk officer may have to wait when trying a rule."""


def answer(_effort: Effort) -> Answer:
    """Replay 10,000 calls of twelve moments each under rules that decide every call differently."""
    book = load_rules(None)
    passcode: Moment = {"verified": True, "verified_person_is_assigned": True, "validation_type": "OneTimePasswordAuth"}
    story: list[Moment] = [{}, {}, {"voice_mismatch": True}, *[{}] * 4, passcode, *[{}] * 4]
    lines = [encode_recorded(record(book, story, voice_id=f"v-{n}")) for n in range(CALLS // 100)] * 100
    other = replace(book, require_opt_in=True)
    took_s, differences = [], 0
    for _ in range(ROUNDS):
        begun_s = time.perf_counter()
        differences = replay_calls(parse_recordings(lines), other, lambda _: None).different
        took_s.append(time.perf_counter() - begun_s)
    row = (CALLS, differences, statistics.median(took_s), min(took_s), max(took_s))
    table = Table(
        f"Replay of {CALLS} recorded calls, {ROUNDS} rounds",
        ("calls", "differences", "median s", "least s", "most s"),
        (row,),
        "Reading, judging and comparing; one process.",
    )
    broken = () if row[2] < LIMIT_S else (f"replay of {CALLS} calls takes {row[2]:.1f} s, not under {LIMIT_S:.0f} s",)
    return Answer("How long do other rules take over recorded calls?", (table,), broken)
