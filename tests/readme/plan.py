"""What is done with each command that README.md and docs/go-live.md show. One that is not listed here fails the check."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from tests.readme.document import Command


class Where(StrEnum):
    """Where a command is typed."""

    DEMO = "demo"  # the terminal of `make run`
    EACH = "each"  # before its own line, in each of the three terminals
    THREE = "three"  # one of the three terminals
    BESIDE = "beside"  # beside `make run`, with its settings
    BOTH = "both"  # beside `make run`, and beside the three terminals, with the settings of each
    CLONE = "clone"  # in the clone, without settings
    CI = "ci"  # not here: a step of .ci/run


class Known(NamedTuple):
    """How a command is tried: where, with which exit code it ends, and words that it shows."""

    where: Where
    code: int = 0
    shows: str = ""


_OPERATOR = "--operator you"

KNOWN: Final = {
    "make run": Known(Where.DEMO),
    "make test": Known(Where.CI),
    "make help": Known(Where.CLONE, shows="make run"),
    "make install": Known(Where.EACH),
    ". .venv/bin/activate": Known(Where.EACH),
    ". deploy/sandbox.env": Known(Where.EACH),
    ". data/demo.env": Known(Where.CLONE),
    "callkeeper calls list": Known(Where.BOTH, shows="voice id"),
    "redis-server --appendonly yes": Known(Where.THREE, 0, "Ready to accept connections"),
    (
        'callkeeper sandbox --port 9000 --push-url http://127.0.0.1:8000/push --push-headers "$CALLKEEPER_PUSH_HEADERS"'
    ): Known(Where.THREE, 0, "sandbox listening on http://127.0.0.1:9000"),
    "honcho start -p 8000 web worker": Known(Where.THREE, 130, "worker_started"),
    "callkeeper secret new": Known(Where.CLONE, shows="CALLKEEPER_PUSH_HEADERS"),
    "callkeeper doctor": Known(Where.BOTH, shows="ok"),
    "callkeeper service survey --ask": Known(Where.BESIDE, shows="requests"),
    "callkeeper rules report --since 7d": Known(Where.BESIDE),
    "callkeeper calls explain VOICE_ID": Known(Where.BESIDE),
    "cp callkeeper/calls/rulebooks/watch-only.toml rules.toml": Known(Where.CLONE),
    "cp callkeeper/calls/rulebooks/watch-only.cases.toml cases.toml": Known(Where.CLONE),
    "callkeeper rules check rules.toml": Known(Where.CLONE, shows="no faults"),
    "callkeeper rules test cases.toml --rules rules.toml": Known(Where.CLONE),
    "callkeeper calls export --output trail.jsonl": Known(Where.BESIDE),
    "callkeeper rules replay rules.toml --calls trail.jsonl": Known(Where.CLONE),
    f'callkeeper pause --institution cu-1 --reason "odd enrolls" {_OPERATOR}': Known(Where.BESIDE, shows="cu-1"),
    f'callkeeper resume --institution cu-1 --reason "rule repaired" {_OPERATOR}': Known(Where.BESIDE),
    "callkeeper pauses": Known(Where.BESIDE, shows="odd enrolls"),
}

PAGES: Final = ("README.md", "docs/go-live.md")
TUTORIAL: Final = "docs/tutorial.md"


def faults(shown: Iterable[Command]) -> list[str]:
    """Return what the pages and the list above do not have in common."""
    texts = {command.text: command.line for command in shown}
    unknown = [f"line {line}: nobody tries `{text}`" for text, line in texts.items() if text not in KNOWN]
    return unknown + [f"the pages no longer show `{text}`" for text in KNOWN if text not in texts]


def typed(shown: Iterable[Command], *where: Where) -> list[str]:
    """Return the commands for some places, each once, in the document's order."""
    known = {command.text: KNOWN[command.text] for command in shown if command.text in KNOWN}
    return [text for text, how in known.items() if how.where in where]
