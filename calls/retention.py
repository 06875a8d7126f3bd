"""For how long what is over is kept. What needs a person is kept until a person has closed it."""

import msgspec


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much stays in Redis.

    ``days``: settled calls, their trails, how far their outcomes were sent, and the event log. ``events``: lines of that log
    at most. ``figure_hours``: figures by the minute.
    """

    days: int = 14
    events: int = 100_000
    figure_hours: int = 1

    @property
    def seconds(self) -> int:
        """Return how long settled calls and events are kept."""
        return self.days * 86400

    @property
    def minutes_kept_s(self) -> int:
        """Return how long a minute of figures is kept: a little longer, for the one that is under way."""
        return self.figure_hours * 3600 + 300
