"""Says in words what is paused."""

from calls.pause import EVERYWHERE, Pauses


def pause_lines(pauses: Pauses) -> list[str]:
    """Say every pause in a line."""
    return [
        f"{'all institutions' if key == EVERYWHERE else key}: {pause.words} (since {pause.at:%Y-%m-%d %H:%M:%S} UTC)"
        for key, pause in sorted(pauses.by_institution.items())
    ]
