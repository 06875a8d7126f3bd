"""What the record of one call says about the provider: whether the voice shows, and which names nobody knows. Pure.

Figures count it call by call, and `callkeeper.calls.quiet_outages` judges many calls by these figures.
"""

from typing import Final

from callkeeper.calls.fact_derivation import has_result
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import Call
from callkeeper.calls.statuses import STATUSES

HEARD_ENOUGH: Final = 8
"""After so many answered checks most calls have a result if the provider knows the voice: 36 s after the assign."""


def is_voice_shown(call: Call, policies: Policies) -> bool:
    """Tell whether the provider has said anything of the voice: a result, a mismatch, a risk, or any policy."""
    has_policy = call.seen.reading is not None and any(name != MANUAL_GREEN for name in call.seen.reading.policies)
    return has_policy or call.seen.mismatch or call.seen.risky_device or has_result(call, policies)


def is_voice_expected(call: Call) -> bool:
    """Tell whether the provider must have something to say: it is still evaluating, or it has a voiceprint."""
    return call.seen.pending or (call.seen.reading is not None and call.seen.reading.is_voice_enrolled)


def signs_shown(call: Call, policies: Policies) -> set[str]:
    """Return whether the policies of a call are classified, and whether its status is unknown: labels of a figure."""
    if call.seen.reading is None:
        return set()
    colours = [policies.colour(name) for name in call.seen.reading.policies]
    shown = {"unclassified" if Colour.UNCLASSIFIED in colours else "classified"} if colours else set()
    return shown | ({"status_unknown"} if _is_status_unknown(call) else set())


def unknown_names(call: Call, policies: Policies) -> list[str]:
    """Return the policies of a call that have no colour, and its status if that is unknown."""
    if call.seen.reading is None:
        return []
    names = [f"policy {name!r}" for name in call.seen.reading.policies if policies.colour(name) is Colour.UNCLASSIFIED]
    return [*names, f"status {call.seen.reading.status!r}"] if _is_status_unknown(call) else names


def _is_status_unknown(call: Call) -> bool:
    return call.seen.reading is not None and call.seen.reading.status not in {None, *STATUSES}
