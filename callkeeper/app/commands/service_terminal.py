"""Requests of commands to the service: the account, messages for errors, and records as tables or JSON.

JSON uses the Spec's names. Secrets are masked unless requested.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import update_wrapper
from typing import Any, Final, NamedTuple, TypeVar

import click
import msgspec
from rich.table import Table

from callkeeper.app.logs import quiet_log
from callkeeper.app.settings import ServiceSettings
from callkeeper.app.terminal import Failed, safe, say, say_json, say_table, shown, terminal_console
from callkeeper.app.wiring import service_config
from callkeeper.calls.institutions import KnownInstitutions
from callkeeper.service import (
    AccessRefused,
    AnswerUnreadable,
    CallNotFound,
    InstitutionNotFound,
    InstitutionSummary,
    MemoryTokenStore,
    NeedsPerson,
    NotSent,
    OutcomeUnknown,
    QueueEntry,
    ResellerError,
    Secret,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
    TurnedAway,
)
from callkeeper.service.answer_parsing import Record
from callkeeper.service.client import Reseller
from callkeeper.service.secret import MASK

T = TypeVar("T")

_PIPED_WIDTH: Final = 1000

ADVICE: tuple[tuple[type[ResellerError], str], ...] = (
    (CallNotFound, "the service knows no such call"),
    (InstitutionNotFound, "the service knows no such institution"),
    (TurnedAway, "the service was too busy: most likely nothing was done; check the call's details first"),
    (OutcomeUnknown, "it may or may not have been applied: check the call's details first"),
    (NotSent, "nothing was sent"),
    (ServiceUnavailable, "try again later"),
    (ServiceRefused, "the service refused the request"),
    (TokenLapsed, "the service did not accept the token: nothing was done"),
    (AccessRefused, "the token is good: ask the service operator what the account may do for this institution"),
    (NeedsPerson, "check CALLKEEPER_SERVICE_URL, CALLKEEPER_ACCESS_TOKEN, CALLKEEPER_EMAIL, CALLKEEPER_PASSWORD"),
    (AnswerUnreadable, "the answer does not have the documented form: is CALLKEEPER_SERVICE_URL right?"),
)


class Terminal(NamedTuple):
    """What a command needs: the account, and how to show answers."""

    settings: ServiceSettings
    requested_by: str | None
    wants_json: bool
    show_secrets: bool
    institution: str | None = None
    """The institution that the command names, if it names one."""

    def operator(self, institution: str) -> str:
        """Return the core username to record: from the option, else from the settings."""
        return self.requested_by or self.settings.requested_by.for_institution(institution)

    def run(self, question: Callable[[Reseller], Awaitable[T]]) -> T:
        """Send requests to the service.

        Raises:
            Failed: The account does not manage the institution of the command; nothing else was sent.
            click.ClickException: The request failed; the message says why and what to do.
        """
        try:
            return asyncio.run(self._ask(question))
        except ResellerError as error:
            raise click.ClickException(_explain(error)) from None
        except ValueError as error:
            raise click.ClickException(str(error)) from None

    def show(self, record: Any, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
        """Print a record as JSON, or as the rows of a table."""
        if self.wants_json:
            self._show_json(record)
        else:
            say_table(columns, rows)

    def show_record(self, record: Any) -> None:
        """Print a record as JSON, or one field per line."""
        if self.wants_json:
            self._show_json(record)
        else:
            table = record_table(record, show_secrets=self.show_secrets)
            terminal_console(soft_wrap=True, width_if_piped=_PIPED_WIDTH).print(table)

    def _show_json(self, record: Any) -> None:
        say_json(plain(record, show_secrets=self.show_secrets), indent=2)

    async def _ask(self, question: Callable[[Reseller], Awaitable[T]]) -> T:
        shown_before: set[str] = set()

        def heed(messages: tuple[Secret, ...]) -> None:
            texts = dict.fromkeys(text.reveal() for text in messages)
            say(*(f"the service says: {text}" for text in texts if text not in shown_before), err=True)
            shown_before.update(texts)

        service = Reseller(service_config(self.settings), MemoryTokenStore(), log=quiet_log(), heed=heed)
        try:
            await self._check_institution(service)
            return await question(service)
        finally:
            await service.aclose()

    async def _check_institution(self, service: Reseller) -> None:
        """Refuse an institution that the account does not manage, according to the login."""
        if self.institution is None or self.institution in (keys := await service.institution_keys()):
            return
        names: dict[str, str | None] = dict.fromkeys(keys)
        with suppress(ResellerError):
            names.update({each.key: each.name for each in await service.institutions()})
        problem = KnownInstitutions(names).problem(self.institution) if names else None
        if problem is not None:
            raise Failed(problem)


def service_command(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the common options, and pass them to it as a `Terminal`."""

    def command(requested_by: str | None, wants_json: bool, show_secrets: bool, **given: Any) -> None:
        settings, institution = ServiceSettings.load(os.environ), given.get("institution")
        terminal = Terminal(settings, requested_by, wants_json, show_secrets, institution)
        function(terminal, **given)

    for option in (
        click.option("--show-secrets", is_flag=True, help="Show secrets, which are masked otherwise."),
        click.option("--json", "wants_json", is_flag=True, help="JSON with the service's names."),
        click.option("--requested-by", metavar="USER", help="Core username to record; default: as configured."),
    ):
        command = option(command)
    return update_wrapper(command, function)


def _explain(error: ResellerError) -> str:
    advice = next(advice for kind, advice in ADVICE if isinstance(error, kind))
    if error.full:
        said = f"the service says: {safe(error.full)}".rstrip(".")
        advice = said if isinstance(error, ServiceRefused) else f"{said}; {advice}"  # its words say why it refused
    cause = [str(error.__cause__)] if isinstance(error.__cause__, ResellerError) else []
    return "; ".join([str(error), advice, *cause])


def plain(record: object, *, show_secrets: bool) -> Any:
    """Return a record as JSON values under the Spec's names, secrets masked or revealed."""

    def secret(value: object) -> str:
        if not isinstance(value, Secret):
            raise NotImplementedError(type(value).__name__)
        return value.reveal() if show_secrets else MASK

    return msgspec.to_builtins(record, enc_hook=secret)


QUEUE_COLUMNS: Final = ("voice id", "phone number", "started (UTC)", "claimed by", "person", "candidates")


def queue_row(entry: QueueEntry) -> tuple[object, ...]:
    """Return a call of the queue as the cells of `QUEUE_COLUMNS`."""
    candidates = ", ".join(f"{person.name or '?'} ({person.person_id or '?'})" for person in entry.persons)
    return entry.voice_id, entry.phone_number, entry.started_at, entry.core_username, entry.person_id, candidates


INSTITUTION_COLUMNS: Final = ("key", "name", "status", "voice auth", "test mode")


def institution_row(each: InstitutionSummary) -> tuple[object, ...]:
    """Return an institution as the cells of `INSTITUTION_COLUMNS`."""
    return each.key, each.name, each.status, word(each.has_voice_auth), word(each.is_test_mode)


def record_table(record: Record, *, show_secrets: bool) -> Table:
    """Return one record, one field per line. Empty fields are left out, nested ones have dotted names."""
    table = Table(box=None, show_header=False)
    for name, value in _leaves("", plain(record, show_secrets=show_secrets)):
        table.add_row(shown(name, "bold"), shown(word(value)))
    return table


def word(value: object) -> object:
    """Return a value as it is shown to people: a truth value in words, and nothing for None."""
    return {None: "", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else value


def _leaves(name: str, value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _leaves(f"{name}[{number}]", inner)
    elif value not in (None, ""):
        yield name, value
