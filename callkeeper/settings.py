"""The settings of each command: frozen records read from the environment.

Every command reads only what it needs, so the web process never holds the service account's password and the
worker never holds the push secret. A start that fails names every variable that is missing or wrong.
"""

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Self, cast

import msgspec
from msgspec.structs import replace

from callkeeper import variables as var
from callkeeper.environment import Reader
from callkeeper.parsing import RequestedBy
from callkeeper.redis_place import RedisPlace
from calls.keys import Keys
from calls.retention import Retention
from desk.access import AdminLogin, DeskToken
from reseller.push_headers import Headers
from reseller.secret import Secret


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    """A record that can be read from the environment, alone or as a part of another."""

    @classmethod
    @abstractmethod
    def read(cls, reader: Reader) -> Self:
        """Read the record; faults stay with the reader."""

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """Read the record from an environment.

        Raises:
            SettingsWrong: Something is missing or wrong; lists all of it.
        """
        reader = Reader(environ)
        return reader.finish(cls.read(reader))


class StoreSettings(_Section, frozen=True, kw_only=True):
    """Where the calls are kept, and how log lines look: what every process needs."""

    redis: RedisPlace
    key_prefix: str
    log_format: str
    retention: Retention

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read REDIS_URL, what belongs to it, how long it keeps what is over, and the log format."""
        place: RedisPlace | None = reader.required(var.REDIS_URL)
        tls, authorities = reader.defaulted(var.REDIS_TLS), reader.optional(var.REDIS_CA)
        if place is not None:
            place = replace(place, tls=tls, authorities=authorities)
        return cls(
            redis=cast("RedisPlace", place),
            key_prefix=reader.defaulted(var.REDIS_PREFIX),
            log_format=reader.defaulted(var.LOG_FORMAT),
            retention=Retention(
                calls_s=reader.defaulted(var.KEEP_CALLS),
                events=reader.defaulted(var.KEEP_EVENTS),
                figures_s=reader.defaulted(var.KEEP_FIGURES),
            ),
        )

    @property
    def keys(self) -> Keys:
        """What our keys are called."""
        return Keys(self.key_prefix)


class ServiceSettings(_Section, frozen=True, kw_only=True):
    """Where the service is and who we are to it.

    Spec: Authentication.
    """

    url: str
    access_token: Secret
    email: str
    password: Secret
    requested_by: RequestedBy

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the service's address and our credentials."""
        return cls(
            url=reader.required(var.SERVICE_URL),
            access_token=reader.required(var.ACCESS_TOKEN),
            email=reader.required(var.EMAIL),
            password=reader.required(var.PASSWORD),
            requested_by=reader.required(var.REQUESTED_BY),
        )


class WebSettings(_Section, frozen=True, kw_only=True):
    """What the web process needs: nothing of the service's credentials."""

    store: StoreSettings
    port: int
    push_headers: Headers
    push_headers_previous: Headers | None
    push_headers_previous_until: datetime | None
    admin: AdminLogin | None
    desk_tokens: tuple[DeskToken, ...]
    """Empty: there is no desk API."""
    desk_origins: tuple[str, ...]
    forwarded_hops: int
    """Routers of ours in front of the web process; 0: what a request says of its way is not believed."""
    public_url: str | None
    """None: nobody has said; only the doctor asks."""
    rules: Path | None
    """None: the shipped rules. The desk says by them what would come of a person's word."""

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the port, the push headers and the watchers' login."""
        previous = reader.optional(var.PUSH_HEADERS_PREVIOUS)
        until = reader.optional(var.PUSH_HEADERS_PREVIOUS_UNTIL)
        if reader.is_set(var.PUSH_HEADERS_PREVIOUS) and not reader.is_set(var.PUSH_HEADERS_PREVIOUS_UNTIL):
            reader.fault(var.PUSH_HEADERS_PREVIOUS_UNTIL, f"is required with {var.PUSH_HEADERS_PREVIOUS.name}")
        return cls(
            store=StoreSettings.read(reader),
            port=reader.defaulted(var.PORT),
            push_headers=reader.required(var.PUSH_HEADERS),
            push_headers_previous=previous,
            push_headers_previous_until=until,
            admin=reader.optional(var.ADMIN),
            desk_tokens=reader.optional(var.DESK_TOKENS) or (),
            desk_origins=reader.defaulted(var.DESK_ORIGINS),
            forwarded_hops=reader.defaulted(var.FORWARDED_HOPS),
            public_url=reader.optional(var.PUBLIC_URL),
            rules=reader.optional(var.RULES),
        )


class OutcomeSettings(_Section, frozen=True, kw_only=True):
    """Where outcomes are posted, and how they are signed."""

    url: str
    secret: Secret
    may_be_private: bool

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the address, the key of the signatures and whether the address may be a private one."""
        url = reader.required(var.OUTCOME_URL)
        if str(url).startswith("http:") and not reader.defaulted(var.OUTCOME_PRIVATE):
            reader.fault(var.OUTCOME_URL, f"is on this machine, which needs {var.OUTCOME_PRIVATE.name}=yes")
        return cls(
            url=url,
            secret=reader.required(var.OUTCOME_SECRET),
            may_be_private=reader.defaulted(var.OUTCOME_PRIVATE),
        )


class WorkerSettings(_Section, frozen=True, kw_only=True):
    """What a worker needs: nothing of the push secret."""

    store: StoreSettings
    service: ServiceSettings
    institutions: tuple[str, ...] | None
    """None: all that the service account manages."""
    rules: Path | None
    """None: the shipped rules."""
    check_at: tuple[float, ...] | None
    """Seconds after assignment; None: as the rules say."""
    reconcile_s: float
    queue_page: int
    outcomes: OutcomeSettings | None
    """None: outcomes are posted nowhere."""

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read where Redis and the service are and how calls are to be handled."""
        return cls(
            store=StoreSettings.read(reader),
            service=ServiceSettings.read(reader),
            institutions=reader.optional(var.INSTITUTIONS),
            rules=reader.optional(var.RULES),
            check_at=reader.optional(var.CHECK_AT),
            reconcile_s=reader.defaulted(var.RECONCILE_S),
            queue_page=reader.defaulted(var.QUEUE_PAGE),
            outcomes=OutcomeSettings.read(reader) if reader.is_set(var.OUTCOME_URL) else None,
        )
