"""Logs pauses that a worker sees begin or end."""

from dataclasses import dataclass, field
from typing import Any

from callkeeper.calls.pause import Pauses


@dataclass(slots=True)
class PauseLog:
    """Remembers which pauses this process has logged."""

    known: Pauses = field(default_factory=Pauses)

    def see(self, pauses: Pauses, log: Any) -> None:
        """Log pauses that are new or over. Most looks find no change."""
        if pauses is self.known:
            return
        before, now = self.known.by_institution, pauses.by_institution
        self.known = pauses
        for key, pause in now.items():
            if before.get(key) != pause:
                log.warning("pause_seen", institution=key, scope=pause.scope, operator=pause.operator)
        for key in sorted(before.keys() - now.keys()):
            log.warning("pause_over", institution=key, scope=before[key].scope)
