"""The delay from the service's answer to a listener: from a green voice in the stand-in to the stream's event.

    python -m benchmarks.stream [--calls 200] [--workers 2]

Processes are real. The calls are live at the same time and become green within ten seconds. The time starts when the
check that returns the green voice arrives, by the stand-in's ledger. The stand-in answers a few milliseconds later, so
the figure is an upper bound.
"""

import argparse
import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory

import httpx

from callkeeper_sandbox.demo.demonstration import demonstration
from tests.harness.processes import Stack
from tests.waiting import until

TOKEN = "benchmark-desk-0123456789"  # noqa: S105  (of a stand-in)


class Listener(threading.Thread):
    """Follows the stream and notes when each call was first seen green."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.green: dict[str, float] = {}
        self.events = 0
        self.is_open = threading.Event()

    def run(self) -> None:
        """Listen until the process ends."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.stream("GET", f"{self._url}/desk/stream", headers=headers, timeout=None) as stream:  # noqa: S113
            for line in stream.iter_lines():
                self.is_open.set()
                if not line.startswith("data: {"):
                    continue
                now, call = time.time(), json.loads(line[6:])
                self.events += 1
                if call.get("green"):
                    self.green.setdefault(call["voice_id"], now)


def main() -> None:
    """Run the benchmark and print the measurements."""
    parser = argparse.ArgumentParser(description="Lag of the desk's stream.")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    environ = {"CALLKEEPER_DESK_TOKENS": f"benchmark:{TOKEN}", "CALLKEEPER_RULES": "demo"}
    with TemporaryDirectory() as folder:
        data = Path(folder)
        with demonstration(data, workers=asked.workers, seed=1, scenario="none", web_environ=environ) as demo:
            stack = Stack(demo, data)
            listener = Listener(demo.web_url)
            listener.start()
            listener.is_open.wait(10)
            calls = [
                stack.call({"kind": "green", "after_s": 12 + 10 * n / asked.calls}, {"kind": "end", "after_s": 120})
                for n in range(asked.calls)
            ]
            until(lambda: len(listener.green) == asked.calls, 60, "every call to be seen green")
            lags = sorted(_lag_ms(stack, call["voice_id"], listener.green[call["voice_id"]]) for call in calls)
            stack.close()
    cuts = quantiles(lags, n=100)
    print(  # noqa: T201  (what a benchmark is for)
        f"{asked.calls} live calls, {asked.workers} workers, {listener.events} events: "
        f"p50 {cuts[49]:.0f} ms, p90 {cuts[89]:.0f} ms, p99 {cuts[98]:.0f} ms, worst {lags[-1]:.0f} ms"
    )


def _lag_ms(stack: Stack, voice_id: str, seen_s: float) -> float:
    """Return the time from the last check before a call was seen green until it was seen green."""
    account = stack.control("GET", f"/calls/{voice_id}")
    seen_at = datetime.fromtimestamp(seen_s, UTC)
    checks = [datetime.fromisoformat(a["at"]) for a in account["arrivals"] if a["operation"] == "check"]
    return (seen_at - max(at for at in checks if at <= seen_at)).total_seconds() * 1000


if __name__ == "__main__":
    main()
