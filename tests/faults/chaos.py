"""A chaos run: calls come in while processes are killed and frozen and the service misbehaves; then an audit.

``python -m tests.faults.chaos --minutes 1 --seed 1`` exits with 1 if any promise was broken. The same seed
brings the same calls and the same disruptions; what they interrupt depends on the timing of the machine.

Under variants that limit requests (``limit-5``: 5 a second) workers get ``CALLKEEPER_SERVICE_RPS``, and calls come in at a
rate that the limit allows (``limit-5``: one every 4 s instead of one every 0.4 s).
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from msgspec.structs import replace

from callkeeper.calls.effect_resolution import recheck
from callkeeper.calls.record import Call
from callkeeper.calls.steps import Wait
from callkeeper.calls.store.keys import Keys
from callkeeper.service.endpoints import canonical_id
from callkeeper_sandbox.demo.fleet import Fleet
from callkeeper_sandbox.service.population import INSTITUTIONS
from tests.covering import calmed
from tests.faults import archive_audit, audit
from tests.faults.chaos_system import ChaosSystem, chaos_system
from tests.harness.processes import Sides
from tests.waiting import until

FOUND_AFTER_S = 25.0
"""A call whose push was lost is found within 10 s. The rest allows for a lease (8 s), a pause and a Redis outage."""

ASKED_PAUSE_S = 60.0
"""The longest pause after ``Retry-After``. No call is found during it."""

LIST_WITHOUT_THE_LAST = frozenset({"list-paged", "list-refused", "list-failing"})
"""With one of these and ``keys-missing`` the service does not name its last institution; an operator would set it."""

CALM_S = 15.0
SETTLES_WITHIN_S = 60.0
ACTIVE_WITHIN_S = 150.0
"""An institution that is active again is known within 90 s, and its ended calls are looked at once a minute."""

INACTIVE = frozenset({"institution-to-review", "institution-disabled"})
"""Under one of these the last institution is not active, and its calls that the rules would reject wait for it."""

LAST_FAILING = frozenset(
    {
        "401-one-institution",
        "500-one-institution",
        "busy-one",
        "busy-one-retry-after",
        "keys-refused",
    }
)
"""With one of these and no list that names it, nobody says whether the last institution is active. Its calls wait, too."""


def lift_trouble(sides: Sides, variants: Sequence[str]) -> None:
    """Switch off the variants that make requests fail or an institution inactive, so that calls can be settled."""
    sides.control("PUT", "/variants", [name for name in calmed(variants) if name not in INACTIVE | LAST_FAILING])


def end_all_calls(sides: Sides) -> None:
    """Stop new calls, and end the live ones."""
    sides.control("PUT", "/scenario", {"is_paused": True})
    for call in sides.control("GET", "/calls"):
        sides.control("POST", f"/calls/{quote(call['voice_id'], safe='')}/now", {"kind": "end"})


def everything_is_settled(sides: Sides) -> bool:
    """Tell whether every record, hints included, is settled, and every reject of a member was followed up."""
    return all(record.is_settled and _is_followed_up(record) for record in sides.records().values())


def _is_followed_up(record: Call) -> bool:
    """Tell whether an enrolled call was read again after a later reject of its member, or needs no such read."""
    if record.plan.recheck_from is None:
        return True
    first = recheck(replace(record, seen=replace(record.seen, reading=None)), record.plan.recheck_from)
    return not isinstance(first, Wait) or (
        record.seen.reading is not None and record.seen.reading.read_at >= first.until
    )


def read_evidence(
    sides: Sides, fleet: Fleet, found_after_s: float = FOUND_AFTER_S, unnamed: Iterable[str] = ()
) -> audit.Evidence:
    """Read the sandbox's counts and callkeeper's records."""
    ledger = sides.control("GET", "/ledger?arrivals=true")
    attempts = sides.control("GET", "/push")
    accepted = {audit.event_id_of(a["body"]) for a in attempts if a["status"] is not None and 200 <= a["status"] < 300}
    stored = sides.redis.zrange(Keys().events, 0, -1)
    return audit.Evidence(
        accounts={canonical_id(voice_id): account for voice_id, account in ledger["calls"].items()},
        unknown=ledger["unknown"],
        records=sides.records(),
        accepted=frozenset(event_id for event_id in accepted if event_id),
        logged=frozenset(json.loads(event)["id"] for event in stored),
        bugs=tuple(_bugs(fleet)),
        found_after_s=found_after_s,
        unnamed=frozenset(unnamed),
    )


def unnamed_institutions(variants: Sequence[str]) -> list[str]:
    """Return the institutions that the service does not name anywhere."""
    is_last_unnamed = "keys-missing" in variants and LIST_WITHOUT_THE_LAST.intersection(variants)
    return list(INSTITUTIONS)[-1:] if is_last_unnamed else []


def waits_for_standing(variants: Sequence[str]) -> bool:
    """Tell whether calls of the last institution wait until it is known that it is active."""
    is_unsaid = LAST_FAILING.intersection(variants) and LIST_WITHOUT_THE_LAST.intersection(variants)
    return bool(is_unsaid or INACTIVE.intersection(variants))


def _bugs(fleet: Fleet) -> Iterator[str]:
    """Find unexpected exceptions in every log."""
    for member in fleet.members:
        for line in member.log.read_text(errors="replace").splitlines():
            if '"step_failed"' in line or '"shift_stuck"' in line or line.startswith("Traceback"):
                yield f"{member.name}: {line[:200]}"


def report(running: ChaosSystem, evidence: audit.Evidence) -> Iterator[str]:
    """Yield lines of a report: what happened and how long things took."""
    reasons = Counter(str(record.life.reason) for record in evidence.records.values())
    yield f"calls: {len(evidence.accounts)} at the service, {len(evidence.records)} known: {dict(reasons)}"
    yield f"events accepted: {len(evidence.accepted)}, all in the log: {evidence.accepted <= evidence.logged}"
    yield f"disruptions: { {what: len(at) for what, at in sorted(running.disruptions.items())} }"
    yield f"listed -> assigned            {audit.spread(audit.found_in_s(evidence))}"
    yield f"green -> the check showing it {audit.spread(audit.noticed_in_s(evidence))}"
    arrivals = audit.all_arrivals(evidence)
    for what in ("worker killed", "both workers killed", "redis killed"):
        waits = audit.next_after(running.disruptions.get(what, ()), arrivals)
        yield f"{what + ' -> the next request':29} {audit.spread(waits)}"
    accepted = [
        datetime.fromisoformat(attempt["at"])
        for attempt in running.sides.control("GET", "/push")
        if attempt["status"] == 202
    ]
    waits = audit.next_after(running.disruptions.get("web killed", ()), accepted)
    yield f"{'web killed -> the next event':29} {audit.spread(waits)}"


def main(arguments: list[str]) -> int:
    """Run, audit, report; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variant", action="append", default=[], help="Of the sandbox; may be repeated.")
    parser.add_argument("--data", type=Path, default=None, help="Folder for logs and data; default: a temporary one.")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as temporary,
        chaos_system(given.data or Path(temporary), given.seed, given.variant) as running,
    ):
        running.disrupt_for(given.minutes * 60)
        lift_trouble(running.sides, given.variant)
        time.sleep(CALM_S)
        end_all_calls(running.sides)
        within_s = SETTLES_WITHIN_S + (ACTIVE_WITHIN_S if waits_for_standing(given.variant) else 0.0)
        in_time = True
        try:
            until(lambda: everything_is_settled(running.sides), within_s, "every call to be settled", every_s=0.5)
        except AssertionError:
            in_time = False
        is_asked_to_pause = "busy-one-retry-after" in given.variant
        found_after_s = FOUND_AFTER_S + (ASKED_PAUSE_S if is_asked_to_pause else 0.0)
        evidence = read_evidence(running.sides, running.fleet, found_after_s, unnamed_institutions(given.variant))
        with suppress(AssertionError):
            until(lambda: archive_audit.is_archived(running.sides.redis), SETTLES_WITHIN_S, "the archive", every_s=0.5)
        broken = [*audit.faults(evidence), *archive_audit.archive_faults(running.sides.redis, running.archive)]
        for line in report(running, evidence):
            print(line)  # noqa: T201  (a command)
    for line in broken:
        print(f"BROKEN  {line}")  # noqa: T201
    is_clean = in_time and not broken
    under = f", under {', '.join(given.variant)}" if given.variant else ""
    print(f"seed {given.seed}, {given.minutes:g} min{under}: {'clean' if is_clean else 'NOT CLEAN'}")  # noqa: T201
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
