"""Institutions that the settings name and that the account does not have; only a login's list tells.

Workers look when they have logged in (``workers.institutions``), the web process when workers have stored the list, the
doctor when it has logged in itself.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from redis.exceptions import RedisError

from callkeeper.settings import WebSettings, WorkerSettings
from calls.queries import Queries

Named = Mapping[str, frozenset[str]]
"""Name of a variable to the institutions that it names."""

LOOK_EVERY_S: Final = 15.0
"""How often the web process looks whether the list is stored by now."""


def named_by_worker(settings: WorkerSettings, rules: frozenset[str] = frozenset()) -> Named:
    """Return the institutions that the settings of a worker name; ``rules`` are those of its rules file."""
    return {
        "CALLKEEPER_INSTITUTIONS": frozenset(settings.institutions or ()),
        "CALLKEEPER_REQUESTED_BY": frozenset(key for key, _ in settings.service.requested_by.by_institution),
        "CALLKEEPER_RULES": rules,
    }


def named_by_web(settings: WebSettings) -> Named:
    """Return the institutions that the settings of the web process name; its rules file is the workers' own."""
    return {
        "CALLKEEPER_DESK_TOKENS": frozenset[str]().union(*(token.institutions or () for token in settings.desk_tokens))
    }


async def warn_of_unknown(named: Named, queries: Queries, log: Any, *, every_s: float = LOOK_EVERY_S) -> None:
    """Log which institutions of the settings do not exist, once their list is stored; return then."""
    while any(named.values()):
        try:
            known = await queries.institutions()
        except (RedisError, OSError):
            known = None
        if known is not None and known.is_list_stored:
            for setting, key, nearest in known.unknown(named):
                log.warning("institution_unknown", setting=setting, institution=key, nearest=nearest)
            return
        await asyncio.sleep(every_s)
