"""Parts of a worker, built the way production builds them, with settings that a test changes one by one."""

from collections.abc import Callable, Mapping

from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.keys import KEPT_S, Keys
from callkeeper.service import ServiceConfig
from workers.managed_keys import InstitutionSettings
from workers.runtime import Outlets, ServiceUse, WorkerRuntime


def institution_settings(
    *,
    only: frozenset[str] | None = None,
    in_test: frozenset[str] = frozenset(),
    named: Mapping[str, frozenset[str]] | None = None,
    beside: Callable[[str], bool] = lambda _: False,
) -> InstitutionSettings:
    """Return settings that name no institution, unless others are given."""
    return InstitutionSettings(only=only, in_test=in_test, named=named or {}, is_acted_for_beside=beside)


def worker_runtime(redis_url: str, config: ServiceConfig, log: FilteringBoundLogger) -> WorkerRuntime:
    """Return what a worker process works with: the default rules, and neither a webhook nor an archive."""
    return WorkerRuntime(
        Redis.from_url(redis_url),
        keys=Keys(),
        kept_s=KEPT_S,
        service=ServiceUse(config, lambda _: "bot", rps=None),
        institutions=institution_settings(),
        book=load_rules(None),
        outlets=Outlets(open_webhook_client=None, open_archive=None),
        log=log,
        figures=Figures(),
        name="",
    )
