"""Which institutions this worker acts for: those that the account manages and the settings do not exclude.

It only remembers. `workers.managed_institutions` asks Redis and the service.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from callkeeper.calls.institutions import KnownInstitutions


@dataclass(frozen=True, slots=True, kw_only=True)
class InstitutionSettings:
    """What the settings of this process say about institutions."""

    only: frozenset[str] | None
    """The only ones that we act for; None: all that the account manages."""
    in_test: frozenset[str]
    """Those that are handled although they are in test mode."""
    named: Mapping[str, frozenset[str]]
    """The keys in the settings, by setting."""
    is_acted_for_beside: Callable[[str], bool]
    """Tells whether other workers of this installation act for an institution. Their settings may differ from ours."""


@dataclass(slots=True, eq=False)
class ManagedKeys:
    """The keys of the institutions that the account manages, and which of them we act for."""

    settings: InstitutionSettings
    log: FilteringBoundLogger
    managed: frozenset[str] = frozenset()
    acted_for: frozenset[str] = frozenset()
    _spelled_otherwise: set[str] = field(default_factory=set)
    """Keys that are left out, because one that is kept is the same in other capitals."""
    _warned_of: set[tuple[str, str]] = field(default_factory=set)

    def allowed(self, keys: Iterable[str]) -> frozenset[str]:
        """Return those of some keys that the settings do not exclude."""
        return frozenset(keys) if self.settings.only is None else self.settings.only.intersection(keys)

    def needed(self, managed: frozenset[str]) -> frozenset[str]:
        """Return the keys whose standing we need. A key that the settings name is one, also if the account lacks it."""
        return managed if self.settings.only is None else self.settings.only

    def take(self, managed: frozenset[str]) -> None:
        """Take over which institutions the account manages."""
        self.managed = self._in_one_spelling(managed)
        self.acted_for = self._in_one_spelling(self.allowed(managed))

    def drop(self, institution_key: str) -> None:
        """Act no more for an institution."""
        self.managed -= {institution_key}
        self.acted_for -= {institution_key}

    def is_left_to_others(self, institution_key: str) -> bool:
        """Tell whether only our own settings exclude an institution, for which other workers act."""
        is_excluded = institution_key in self.managed and institution_key not in self.acted_for
        return is_excluded and self.settings.is_acted_for_beside(institution_key)

    def left_to_others(self) -> list[str]:
        """Return all institutions of which `is_left_to_others` holds."""
        return [] if self.settings.only is None else [key for key in self.managed if self.is_left_to_others(key)]

    def spelling_kept(self, institution_key: str) -> str:
        """Return the key that we act for instead of one that is the same in other capitals; else the key itself."""
        if institution_key not in self._spelled_otherwise:
            return institution_key
        kept = (key for key in self.acted_for if key.casefold() == institution_key.casefold())
        return next(kept, institution_key)

    def _in_one_spelling(self, keys: frozenset[str]) -> frozenset[str]:
        """Keep one of keys that differ only in capitals, the same one in all workers.

        With both, each call would have two records, and two enrolls.
        """
        kept = {key.casefold(): key for key in sorted(keys)}
        for key in sorted(keys.difference(kept.values(), self._spelled_otherwise)):
            self.log.error("institution_spelled_twice", institution=kept[key.casefold()], left_out=key)
            self._spelled_otherwise.add(key)
        return frozenset(kept.values())

    def warn_of_unknown(self, names: Mapping[str, str | None]) -> None:
        """Log each institution in the settings that the account does not manage, once per key.

        ``names`` are those of the institutions that it manages, by key; None where the service has not said it.
        """
        if not self.settings.named:
            return
        for setting, key, nearest in KnownInstitutions(names).unknown(self.settings.named):
            if (setting, key) not in self._warned_of:
                self._warned_of.add((setting, key))
                self.log.warning("institution_unknown", setting=setting, institution=key, nearest=nearest)
