"""Notices what many steps come across, and logs it once: pauses that come and go, stored values that cannot be read."""

from dataclasses import dataclass, field
from typing import Any

from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures
from calls.pause import Pauses


@dataclass(slots=True)
class PauseNotice:
    """Remembers which pauses this process has logged."""

    known: Pauses = field(default_factory=Pauses)

    def see(self, pauses: Pauses, log: Any) -> None:
        """Log what is new since the last look; looks are frequent, and nearly all find nothing."""
        if pauses is self.known:
            return
        before, now = self.known.by_institution, pauses.by_institution
        self.known = pauses
        for key, pause in now.items():
            if before.get(key) != pause:
                log.warning("pause_seen", institution=key, scope=pause.scope, operator=pause.operator)
        for key in sorted(before.keys() - now.keys()):
            log.warning("pause_over", institution=key, scope=before[key].scope)


@dataclass(slots=True)
class UnreadableNotice:
    """Logs and counts stored values that cannot be read, once each for a kind of value and an institution."""

    log: Any
    figures: Figures
    _known: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, what: str, institution_key: str) -> None:
        """Notice one; ``institution_key`` is empty where it belongs to none."""
        if (what, institution_key) in self._known:
            return
        self._known.add((what, institution_key))
        self.figures.count(figure.STORED_UNREADABLE, what)
        self.log.error("stored_unreadable", what=what, institution=institution_key)
