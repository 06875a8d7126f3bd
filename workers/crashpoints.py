"""Named places at which a worker can be made to die, freeze or fail: how the promises about crashes are tested.

Permanent and off: without ``CALLKEEPER_CRASH_AT`` a point costs one look at an empty dict. The variable reads
``POINT:ACTION`` or ``POINT:ACTION:N``, several separated by commas: at the n-th passing (the first unless told) ``kill``
sends SIGKILL, ``stop=SECONDS`` freezes the process for so long, ``raise`` raises. docs/guarantees.md says what follows
from a crash at each point.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

VARIABLE = "CALLKEEPER_CRASH_AT"

_REQUEST = ("mid-request", "after-request")
_SAVE = ("before-save", "after-save")
_BEFORE_EFFECT = ("before-intended", "after-intended", "before-sent", "after-sent", "first-byte")
_STEPS = {
    "call": ("claimed", "folded"),
    "look": ("before-asked", "after-asked", *_SAVE),
    "read": (*_REQUEST, *_SAVE),
    "check": ("before-booked", "after-booked", *_REQUEST, *_SAVE),
    "assign": (*_BEFORE_EFFECT, *_REQUEST, *_SAVE),
    "enroll": (*_BEFORE_EFFECT, *_REQUEST, *_SAVE),
    "reject": (*_BEFORE_EFFECT, *_REQUEST, *_SAVE),
    "settle": _SAVE,
    "drop": _SAVE,
    "listing": ("claimed", *_REQUEST, "told", *_SAVE),
}

POINTS = tuple(f"{step}.{moment}" for step, moments in _STEPS.items() for moment in moments)
"""Every point. ``before-sent``: the ledger is about to say ``sent``; ``after-sent``: it does; ``first-byte``: nothing is
left but the write; ``mid-request``: a moment after it; ``after-request``: the answer is here, and not written down."""

MID_REQUEST_S = 1.0
"""How long after its start a request counts as under way; a test makes the service slower than that."""


class CrashPoint(Exception):
    """A point that was told to raise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens at a point, and at which passing."""

    action: str
    nth: int = 1


@dataclass(slots=True)
class Crashpoints:
    """The points that are switched on, and how often each was passed."""

    plans: Mapping[str, Plan] = field(default_factory=dict)
    passed: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Crashpoints":
        """Read the plans.

        Raises:
            ValueError: A plan is not ``POINT:ACTION`` or ``POINT:ACTION:N``, or there is no such point.
        """
        return cls(dict(_plan(part) for part in environ.get(VARIABLE, "").split(",") if part.strip()))

    def pass_by(self, point: str) -> None:
        """Pass a point; die, freeze or fail there if it is switched on."""
        plan = self.plans.get(point)
        if plan is None:
            return
        self.passed[point] += 1
        if self.passed[point] == plan.nth:
            _carry_out(point, plan.action)

    @contextmanager
    def during(self, point: str) -> Iterator[None]:
        """Pass a point while a request is under way, in the running loop; an answer that comes earlier leaves it out."""
        if point not in self.plans:
            yield
            return
        handle = asyncio.get_running_loop().call_later(MID_REQUEST_S, self.pass_by, point)
        try:
            yield
        finally:
            handle.cancel()


def _plan(text: str) -> tuple[str, Plan]:
    point, _, rest = text.strip().partition(":")
    action, _, nth = rest.partition(":")
    if point not in POINTS:
        raise ValueError(f"{VARIABLE}: there is no point {point!r}")
    if action not in {"kill", "raise"} and not action.startswith("stop="):
        raise ValueError(f"{VARIABLE}: {action!r} is none of kill, raise, stop=SECONDS")
    return point, Plan(action, int(nth or 1))


def _carry_out(point: str, action: str) -> None:
    sys.stdout.flush()
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "raise":
        raise CrashPoint(point)
    _freeze(float(action.partition("=")[2]))


def _freeze(seconds: float) -> None:
    """Stop this process; a child that outlives the stop continues it."""
    wake = f"sleep {seconds}; kill -CONT {os.getpid()}"
    subprocess.Popen(["/bin/sh", "-c", wake], start_new_session=True)  # noqa: S603  (our own numbers)
    os.kill(os.getpid(), signal.SIGSTOP)
