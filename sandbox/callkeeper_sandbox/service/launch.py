"""Runs the sandbox as a process, with the data of its state file, until a signal."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import uvicorn

from callkeeper_sandbox.service import population, storage
from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.scenario import Progress, Scenario, Tempo
from callkeeper_sandbox.service.server import create_server, serve
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.state import PushSettings
from callkeeper_sandbox.service.world import Clock, World, utc_now

SAVE_S = 5.0


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a process.

    Attributes:
        seed: Seed of a new scenario; the state file's has precedence.
        gap_s: Mean seconds between two calls of a new scenario.
        variants: Variants in force; None keeps those of the state file.
    """

    credentials: Credentials = Credentials()
    seed: int = 1
    gap_s: float = Tempo().gap_s
    has_scenario: bool = True
    push: PushSettings | None = None
    state_file: Path | None = None
    variants: tuple[str, ...] | None = None


def build(launch: Launch, *, clock: Clock = utc_now) -> Sandbox:
    """Continue from the state file, or start with the default population.

    Raises:
        StateFileError: The state file cannot be read.
        VariantError: A variant is unknown, or two answer the same question.
    """
    read = storage.load(launch.state_file) if launch.state_file is not None else None
    if read is None:
        sandbox = Sandbox(World(clock), credentials=launch.credentials)
        population.settle(sandbox.world, PushSettings() if launch.push is None else launch.push)
    else:
        sandbox = storage.restore(read, clock=clock, credentials=launch.credentials)
    if launch.push is not None:
        for child in sandbox.world.state.institutions.values():
            child.push = launch.push
    sandbox.choose(sandbox.world.state.variants if launch.variants is None else launch.variants)
    _set_scenario(sandbox, launch)
    return sandbox


def _set_scenario(sandbox: Sandbox, launch: Launch) -> None:
    """Start a scenario, continue the one of the state file, or pause it."""
    if sandbox.scenario is None and launch.has_scenario:
        sandbox.begin(Scenario(Progress(launch.seed, sandbox.world.clock(), Tempo(gap_s=launch.gap_s))))
    elif sandbox.scenario is not None and launch.has_scenario:
        sandbox.scenario.resume(sandbox.world.clock())
    elif sandbox.scenario is not None:
        sandbox.scenario.pause()


def run(sandbox: Sandbox, sock: socket.socket, state_file: Path | None) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT, then write the state file."""
    asyncio.run(_run(sandbox, sock, state_file))


async def _run(sandbox: Sandbox, sock: socket.socket, state_file: Path | None) -> None:
    server = create_server(sandbox)
    with _stopped_by_signals(server):
        serving = asyncio.ensure_future(serve(server, sandbox, sock))
        while not serving.done():
            await asyncio.wait([serving], timeout=SAVE_S)
            if state_file is not None:
                await asyncio.to_thread(storage.save, state_file, storage.snapshot(sandbox))
        await serving


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
