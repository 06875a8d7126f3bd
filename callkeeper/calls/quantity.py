"""Numbers of things, in words for people."""


def quantity(count: int, noun: str, plural: str = "") -> str:
    """Return for example "1 call" or "2 calls"; ``plural`` is for nouns that take more than an "s"."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
