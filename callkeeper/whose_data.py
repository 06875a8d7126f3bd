"""What the commands that erase share: whose data it is, and what Redis held of it."""

import os
from collections.abc import Collection

from callkeeper.redis_query import query_redis
from callkeeper.settings import StoreSettings
from callkeeper.terminal import Misused
from calls.call_query import number_of
from calls.store.erasing import Eraser, Whose


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


def erased_in_redis(whose: Whose, held: Collection[str] = ()) -> str:
    """Erase in Redis, and return what was done in words.

    Raises:
        Failed: Redis does not answer.
    """
    found = query_redis(lambda redis, keys: Eraser(redis, keys=keys).erase(whose, held=held))
    live = f"; {found.live} calls are live: repeat it after their end" if found.live else ""
    return f"Redis: {found.erased} calls are erased; {found.held} calls are under a hold{live}"
