"""Runs the tests of a module on a sample of its changes, in a copy of the tree.

``python -m tests.mutation.trial MODULE SAMPLE TESTS...``, started in the copy, prints one line of JSON for each change.
What imports cost is paid once: each trial is a fork of a process that has imported the libraries, and of ours what does
not import the module.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import grimp

from tests.mutation.changes import sample

_LIBRARIES: Final = (
    *("aiohttp", "alembic.command", "fakeredis", "httpx", "httpx_aiohttp", "joserfc.jwt"),
    *("hypothesis.internal.conjecture.engine", "msgspec", "phonenumbers", "pytest", "redis.asyncio", "rich.console"),
    *("rq", "sqlalchemy", "starlette.applications", "structlog", "uvicorn", "uvloop"),
)
_BROKEN: Final = 99
"""The exit status of a trial whose module could not be imported."""

_OUTPUT: Final = "build/trial.log"
"""What the last trial printed."""

_IMPORTED: Final = "ignore::pytest.PytestAssertRewriteWarning"
"""Hypothesis has been imported by the parent."""

_POLL_S: Final = 0.02
_LEAST_S: Final = 30.0
_TIMES: Final = 6.0
"""A trial that takes so many times as long as the tests took, and at least so long, has noticed the change."""


class TestsFail(Exception):
    """The tests fail on the module as it is."""


def main(path: str, size: int, tests: Sequence[str]) -> None:
    """Try so many changes of one module, and print what became of each."""
    for name in [*_LIBRARIES, *_unaffected(path.removesuffix(".py").replace("/", "."))]:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    if path.removesuffix(".py").replace("/", ".") in sys.modules:
        raise TestsFail(f"{path}: it is imported before it is changed, so no test could notice")
    file = Path(path)
    code = file.read_text(encoding="utf-8")
    began = time.monotonic()
    if _status(path, tests, 600.0, is_changed=False) != 0:
        raise TestsFail(f"{path}: its tests fail without any change\n{Path(_OUTPUT).read_text(encoding='utf-8')}")
    limit_s = max(_LEAST_S, _TIMES * (time.monotonic() - began))
    left = size
    for n, change in enumerate(sample(code)):
        file.write_text(change.code, encoding="utf-8")
        # Python knows a module's compiled form by whole seconds and size, which may be those of the change before.
        os.utime(file, (n, n))
        status = _status(path, tests, limit_s, is_changed=True)
        if status == _BROKEN:
            continue
        print(json.dumps([status != 0, change.line, change.becomes]), flush=True)  # noqa: T201
        left -= 1
        if not left:
            break
    file.write_text(code, encoding="utf-8")


def _unaffected(module: str) -> list[str]:
    """Return our modules that import neither a module nor what imports it, nor lie in a package that does."""
    graph = grimp.build_graph("callkeeper", "receiver", "workers", cache_dir=None)
    affected: set[str] = set()
    new = {module}
    while new:
        name = new.pop()
        affected.add(name)
        new |= {*graph.find_downstream_modules(name), *graph.find_descendants(name)} - affected
    return sorted(name for name in graph.modules - affected if "migrations" not in name)


def _status(path: str, tests: Sequence[str], limit_s: float, *, is_changed: bool) -> int:
    pid = os.fork()
    if not pid:
        os._exit(_run(path, tests, is_changed=is_changed))
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_S)
    for each in [*_descendants(pid), pid]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


def _descendants(pid: int) -> list[int]:
    """Return the processes below one, which has a Redis server of its own."""
    with suppress(OSError):
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [each for child in children for each in (child, *_descendants(child))]
    return []


def _run(path: str, tests: Sequence[str], *, is_changed: bool) -> int:
    """Run the tests in this process, which is a fork."""
    output = os.open(_OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    sys.dont_write_bytecode = is_changed
    os.environ["CI"] = "true"  # Hypothesis tries the same examples each time
    try:
        importlib.import_module(path.removesuffix(".py").replace("/", "."))
    except Exception:  # noqa: BLE001  (whatever it is: a module that cannot be imported reaches nobody)
        return _BROKEN
    import pytest  # noqa: PLC0415  (imported by the parent)

    options = ("-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "-W", _IMPORTED, "--basetemp", "build/trial")
    return int(pytest.main([*options, *tests]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
