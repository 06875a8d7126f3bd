"""The state file: all data of the sandbox, so that a restart continues with it.

It is replaced atomically. Pushes that wait for their time are not in it: a restart loses them, as a restart of the
service would.
"""

from pathlib import Path

import msgspec

from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.faults import Fault, Faults
from callkeeper_sandbox.service.ledger import Entries, Ledger
from callkeeper_sandbox.service.push import Attempt, PushTotals
from callkeeper_sandbox.service.scenario import Progress, Scenario
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.state import State
from callkeeper_sandbox.service.world import Clock, World, utc_now

VERSION = 1


class StateFileError(Exception):
    """The state file cannot be read; the message says which file and why."""


class Snapshot(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Everything that survives a restart."""

    version: int = VERSION
    world: State
    ledger: Entries
    faults: list[Fault]
    attempts: list[Attempt]
    totals: PushTotals
    scenario: Progress | None


def snapshot(sandbox: Sandbox) -> bytes:
    """Encode the state of the sandbox."""
    return msgspec.json.encode(
        Snapshot(
            world=sandbox.world.state,
            ledger=sandbox.ledger.snapshot(),
            faults=sandbox.faults.scripted,
            attempts=list(sandbox.pusher.attempts),
            totals=sandbox.pusher.totals,
            scenario=sandbox.scenario.progress if sandbox.scenario is not None else None,
        )
    )


def restore(
    read: Snapshot,
    *,
    clock: Clock = utc_now,
    credentials: Credentials | None = None,
) -> Sandbox:
    """Rebuild the sandbox from a snapshot, at the present time."""
    sandbox = Sandbox(
        World(clock, read.world),
        credentials=credentials,
        faults=Faults(read.faults),
        ledger=Ledger(read.ledger),
        scenario=Scenario(read.scenario) if read.scenario is not None else None,
    )
    sandbox.pusher.attempts.extend(read.attempts)
    sandbox.pusher.totals = read.totals
    return sandbox


def save(path: Path, written: bytes) -> None:
    """Replace the state file."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(written)
    partial.replace(path)


def load(path: Path) -> Snapshot | None:
    """Read the state file, if there is one.

    Raises:
        StateFileError: It is not a state file of this version.
    """
    try:
        read = msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateFileError(f"{path} cannot be read as a state file: {error}") from error
    if read.version != VERSION:
        raise StateFileError(f"{path} is of version {read.version}, not {VERSION}")
    return read
