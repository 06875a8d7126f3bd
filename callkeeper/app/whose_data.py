"""What the commands that erase share: whose data it is, and what Redis held of it."""

import os
from collections.abc import Collection

from callkeeper.app.redis_query import query_redis
from callkeeper.app.settings import StoreSettings
from callkeeper.app.terminal import Failed, Misused
from callkeeper.calls.phone_number import number_of
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.earlier_calls import number_key
from callkeeper.calls.store.erasing import Eraser, Holds, Whose
from callkeeper.calls.store.queries import Queries
from callkeeper.service.secret import Secret


def person_of(institution: str, person: str | None, phone: str | None) -> Whose:
    """Return whose data is erased.

    Raises:
        Misused: Not one of ``--person`` and ``--phone`` was said, or the number is none.
    """
    if (person is None) is (phone is None):
        raise Misused("say --person or --phone")
    country = StoreSettings.load(os.environ).country
    whole = None if phone is None else number_of(phone, country)
    if phone is not None and whole is None:
        raise Misused("--phone is no phone number")
    return Whose(institution, person, None if whole is None else f"+{whole}", country)


def problem_of(institution: str) -> str | None:
    """Return what is wrong with an institution's key; None if Redis knows the institution or has calls of it.

    Raises:
        Failed: Redis does not answer.
    """
    problem = query_redis(lambda redis, keys: Queries(redis, keys=keys).institutions()).problem(institution)
    has_calls = problem is not None and query_redis(lambda redis, keys: Eraser(redis, keys=keys).has_calls(institution))
    return None if has_calls else problem


def erased_in_redis(
    whose: Whose, holds: Holds | None = None, *, held: Collection[str] = (), archived: Collection[str] = ()
) -> tuple[str, set[str]]:
    """Erase in Redis, and return what was done in words, and the member's id in other capitals, which was not erased.

    The other arguments are those of `Eraser.erase`.

    Raises:
        Failed: Redis does not answer.
    """
    token = os.environ.get("CALLKEEPER_ACCESS_TOKEN")  # only workers need it, so it may be unknown here
    secret = number_key(Secret(token)) if token else None
    found = query_redis(
        lambda redis, keys: Eraser(redis, keys=keys, number_key=secret).erase(
            whose, holds=Holds() if holds is None else holds, held=held, archived=archived
        )
    )
    live = f"; {quantity(found.live, 'call is', 'calls are')} live: repeat it after their end" if found.live else ""
    unread = f"; {quantity(found.unread, 'call')} cannot be read by this release: not searched" if found.unread else ""
    marks = f"; {quantity(found.marks, 'mark')} of rejects, fraud and suspicion deleted" if found.marks else ""
    erased, held = (quantity(count, "call is", "calls are") for count in (found.erased, found.held))
    return f"Redis: {erased} erased; {held} under a hold{live}{unread}{marks}", found.spellings


def fail_if_spelled_otherwise(spellings: Collection[str]) -> None:
    """End an erasure that did not find everything under the id that was given.

    Raises:
        Failed: Calls name the member's id in other capitals, too.
    """
    if spellings:
        others = ", ".join(sorted(spellings))
        raise Failed(f"calls name the id as {others}, which was not erased: erase that too, if it is the same member")
