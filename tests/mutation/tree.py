"""Copies of the tree, in which code is changed and tests are run."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from shutil import copyfile
from typing import Final

ROOT: Final = Path(__file__).parents[2]


class CodeNotFound(Exception):
    """The code that is to be changed is not in its file, or more than once."""


@contextmanager
def copies(count: int = 1) -> Iterator[SimpleQueue[Path]]:
    """Copy the tree as it is, so many times, without what git ignores."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")  # noqa: S603
    made: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        for n in range(count):
            copy = Path(folder) / str(n)
            (copy / "build").mkdir(parents=True)
            for name in names:
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    copyfile(ROOT / name, copy / name)
            made.put(copy)
        yield made


def is_noticed(
    copy: Path, file: str, changes: Sequence[tuple[str, str]], tests: Sequence[str], within_s: float
) -> bool:
    """Tell whether tests fail on a copy in which code was replaced. A timeout counts as a failure.

    Raises:
        CodeNotFound: The file does not have the code to replace.
    """
    path = copy / file
    intact = changed = path.read_text(encoding="utf-8")
    for old, new in changes:
        if old not in changed:
            raise CodeNotFound(f"{file} does not contain {old!r}")
        changed = changed.replace(old, new, 1)
    path.write_text(changed, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *tests]
    environ = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "TEST_NIGHT": "1"}
    try:
        ended = subprocess.run(  # noqa: S603  (our own arguments)
            command, cwd=copy, env=environ, capture_output=True, timeout=within_s, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(intact, encoding="utf-8")
    # pytest-timeout ends the process of an asynchronous test that hangs, so nothing counts it as failed.
    return ended.returncode == 1 and (b"failed" in ended.stdout or b"+ Timeout +" in ended.stdout)
