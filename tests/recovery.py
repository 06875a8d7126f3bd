"""Outages in virtual time: whole shifts against a service that goes away while calls arrive throughout.

``python -m tests.recovery`` measures how long after the service's return the first new call is assigned, and prints the
table of docs/guarantees.md: of nine outages of each kind, pushed and not pushed, with ``--long`` of one that lasts 90
minutes at two calls a second. With ``--trouble`` it prints the table of what one institution notices of another's trouble:
the worst delay, against the same run without trouble.
"""

import argparse
import asyncio
import datetime as dt
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from callkeeper.calls.store.cancelling import end
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.redis_in_step import virtually
from tests.harness.virtual_worker import NEW, OTHER, Works, working

LONG_S: Final = 5400.0
LONG_PER_S: Final = 2.0

Begin = Callable[[Works], None]


def _fault(**more: Any) -> Begin:
    def begin(works: Works) -> None:
        works.stage.sandbox.faults.add(Fault(**more))

    return begin


def _refuse_connections(works: Works) -> None:
    works.between.is_refusing = True


def _hang(works: Works) -> None:
    works.between.is_hanging = True


def _expire_tokens(works: Works) -> None:
    """Let the service forget its tokens and answer 503."""
    works.stage.world.state.tokens.clear()
    works.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=503))


def _change_password(works: Works) -> None:
    """Change the account's password, so that neither token nor login works."""
    works.stage.world.state.tokens.clear()
    works.stage.sandbox.credentials = NEW


OUTAGES: Final[Mapping[str, Begin]] = {
    "connections refused": _refuse_connections,
    "503": _fault(target="*", action=Action.ANSWER, status=503),
    "503 with Retry-After: 3600": _fault(target="*", action=Action.ANSWER, status=503, headers={"Retry-After": "3600"}),
    "hanging": _hang,
    "503, tokens expired": _expire_tokens,
    "login refused, then a new password": _change_password,
    "login refused, then `service retry`": _change_password,
}

UNTOLD: Final = "login refused, then accepted again"
"""Nobody tells us that this one is over: refused credentials are tried less and less often, at last every 15 minutes."""


@dataclass(slots=True)
class Recovery:
    """The result of one outage: when the first call after it was assigned, and which calls were lost."""

    first_s: float
    first_pushless_s: float
    live_unfound: int
    log: Counter[str] = field(default_factory=Counter)


async def outage(name: str, lasts_s: float, *, per_s: float = 1.0, lead_s: float = 8.0) -> Recovery:
    """Let an outage begin and end while calls arrive; return how the worker recovers.

    Args:
        name: One of `OUTAGES`, or `UNTOLD`.
        lasts_s: How long it lasts, in seconds.
        per_s: Calls a second, before, during and after it; each lasts two minutes and is pushed.
        lead_s: Seconds before the outage.
    """
    async with working() as works:
        arriving = asyncio.ensure_future(_arrive(works, per_s))
        await asyncio.sleep(lead_s)
        OUTAGES.get(name, _change_password)(works)
        await asyncio.sleep(lasts_s)
        await works.mend(name)
        back_at = works.stage.clock.now
        first, pushless = await works.call(lasts_s=1000), await works.call(lasts_s=1000, pushed=False)
        for _ in range(75 if name == UNTOLD else 1):
            await asyncio.sleep(12)
            if works.assigned_s(first) is not None:
                break
        await end({arriving})
        live = [call for call in works.stage.world.state.calls.values() if call.ended_at is None]
        old = [call for call in live if call.started_at < back_at + dt.timedelta(seconds=2)]
        found = {call.voice_id for call in old if await works.rig.find(call.voice_id) is not None}
        return Recovery(
            works.assigned_s(first) or 99.0, works.assigned_s(pushless) or 99.0, len(old) - len(found), works.events()
        )


async def _arrive(works: Works, per_s: float) -> None:
    while True:
        await works.call(lasts_s=120)
        await asyncio.sleep(1 / per_s)


@dataclass(frozen=True, slots=True)
class Notice:
    """How much later an institution's calls were assigned and checked because of another's trouble, in seconds."""

    assigned_s: float
    check_s: float


TROUBLES: Final[Mapping[str, Begin]] = {
    "none": lambda _: None,
    "429 with Retry-After: 60": _fault(
        target="*", action=Action.ANSWER, status=429, headers={"Retry-After": "60"}, institution_key=OTHER
    ),
    "429 without Retry-After": _fault(target="*", action=Action.ANSWER, status=429, institution_key=OTHER),
    "401": _fault(target="*", action=Action.UNAUTHORIZED, institution_key=OTHER),
    "500": _fault(target="*", action=Action.ANSWER, status=500, institution_key=OTHER),
    "connections reset": _fault(target="*", action=Action.RESET, institution_key=OTHER),
    "answers after 5.5 s": lambda works: works.between.slow.update({OTHER: 5.5}),
    "no answers": lambda works: works.between.slow.update({OTHER: 3600.0}),
    "its queue is refused": _fault(target="queue", action=Action.REFUSED, institution_key=OTHER),
}


async def trouble(begin: Begin, *, calls: int = 8, watched_s: float = 60.0) -> list[tuple[float, list[float]]]:
    """Let one institution with many calls be in trouble; return when another's calls were assigned and checked.

    A call of the other institution begins every ten seconds, with voice ids that do not depend on the trouble: its check
    times are the same with and without.

    Args:
        begin: Begins the trouble.
        calls: How many calls the institution in trouble has.
        watched_s: For how long it lasts.
    """
    async with working(institutions=2) as works:
        for _ in range(calls):
            works.stage.call(Happening(Kind.END, 600), key=OTHER)
        await asyncio.sleep(20)
        begin(works)
        watched = []
        for n in range(int(watched_s / 10)):
            watched.append(works.stage.call(Happening(Kind.END, 600), voice_id=f"w-{n}"))
            await works.rig.push(watched[-1])
            works.rig.shift.wakeups.wake()
            await asyncio.sleep(10)
        return [(works.assigned_s(call) or 99.0, works.checks_s(call)) for call in watched]


def notice(quiet: Sequence[tuple[float, list[float]]], seen: Sequence[tuple[float, list[float]]]) -> Notice:
    """Compare a run with trouble with one without."""
    assigned = max(at_s - usual_s for (at_s, _), (usual_s, _) in zip(seen, quiet, strict=True))
    checks = [
        at_s - usual_s
        for (_, checks), (_, usual) in zip(seen, quiet, strict=True)
        for at_s, usual_s in zip([*checks, *[999.0] * (len(usual) - len(checks))], usual, strict=False)
    ]
    return Notice(max(0.0, assigned), max(0.0, *checks))


def measure_long_outages() -> None:
    """Print the rows of the table of long outages: one of each kind, and how many calls came meanwhile."""
    _print_heading("outage of 90 minutes", "calls meanwhile", "pushed call: s", "not pushed: s", "forgotten")
    for name in OUTAGES:
        seen = virtually(outage(name, LONG_S, per_s=LONG_PER_S))
        cells = [
            f"{LONG_S * LONG_PER_S:,.0f}",
            f"{seen.first_s:.1f}",
            f"{seen.first_pushless_s:.1f}",
            seen.live_unfound,
        ]
        _print_row(name, *cells)


def _print_heading(*names: str) -> None:
    _print_row(*names)
    _print_row("---", *["---:"] * (len(names) - 1))


def _print_row(*cells: object) -> None:
    sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
    sys.stdout.flush()


def measure_outages(lengths_s: Sequence[float]) -> None:
    """Print the rows of the table of outages, and how many live calls were forgotten."""
    _print_heading("outage", "median s", "worst s")
    forgotten = 0
    for name in (*OUTAGES, UNTOLD):
        seen = [virtually(outage(name, lasts_s + begins_s)) for lasts_s in lengths_s for begins_s in (0.0, 1.1, 2.3)]
        waits = [wait_s for run in seen for wait_s in (run.first_s, run.first_pushless_s)]
        _print_row(name, f"{statistics.median(waits):.1f}", f"{max(waits):.1f}")
        forgotten += sum(run.live_unfound for run in seen)
    sys.stdout.write(f"{forgotten} live calls forgotten\n")


def measure_troubles() -> None:
    """Print the rows of the table of one institution's trouble."""
    _print_heading("trouble", "assigns later by s", "checks later by s")
    quiet = virtually(trouble(TROUBLES["none"]))
    for name, begin in TROUBLES.items():
        seen = notice(quiet, virtually(trouble(begin)))
        _print_row(name, f"{seen.assigned_s:.2f}", f"{seen.check_s:.2f}")


def main() -> None:
    """Print the tables that the options name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trouble", action="store_true", help="one institution's trouble, not outages")
    parser.add_argument("--long", action="store_true", help="one outage of 90 minutes of each kind")
    parser.add_argument("--lengths", type=float, nargs="+", default=[10.0, 60.0, 240.0], help="of outages, in seconds")
    given = parser.parse_args()
    if given.trouble:
        measure_troubles()
    elif given.long:
        measure_long_outages()
    else:
        measure_outages(given.lengths)


if __name__ == "__main__":
    main()
