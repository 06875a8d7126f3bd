"""What holds at the moment of a decision and is not the call's own: its institution, pauses, Redis, and the load."""

from datetime import timedelta

import msgspec

from callkeeper.calls.record import Obstacles


class Context(msgspec.Struct, frozen=True, gc=False):
    """What a decision must know besides the call, the rules and the time.

    ``live`` is the number of live calls of all institutions, ``late`` how late workers are, ``busy`` the share of a core
    that this one uses: reads make room if there is too much to do. ``is_silent``: a hint's queue could not be listed since.
    """

    obstacles: Obstacles
    live: int = 1
    late: timedelta = timedelta()
    busy: float = 0.0
    is_silent: bool = False
