"""Starts a process without the secrets that it does not read, so that it cannot give them away.

Some platforms give every process of an application the same environment. A web process that holds the service account's
password could lose it to whoever finds a hole in the web process.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from callkeeper.environment import Reader, asked_for
from callkeeper.variables import VARIABLES

REMOVED = "CALLKEEPER_REMOVED_SECRETS"
"""Names the variables that were removed, for the log of the process that goes on without them."""


def own_environment(environ: Mapping[str, str], read: Callable[[Reader], Any]) -> dict[str, str] | None:
    """Return an environment without the secrets that a process does not read; None if it holds no such secret.

    Args:
        environ: The environment as it is.
        read: Reads the settings of the process.
    """
    own = asked_for(VARIABLES, read)
    foreign = {variable.name for variable in VARIABLES if variable.is_secret} - own.keys()
    removed = sorted(foreign & environ.keys())
    if not removed:
        return None
    return {name: value for name, value in environ.items() if name not in removed} | {REMOVED: ",".join(removed)}


def keep_own_secrets(read: Callable[[Reader], Any]) -> list[str]:
    """Start this program anew in the same process without the secrets that it does not read; return their names.

    To delete them from ``os.environ`` would not be enough: the kernel shows the environment that a process was started
    with in ``/proc/<pid>/environ``.
    """
    environ = own_environment(os.environ, read)
    if environ is not None:
        os.execve(sys.executable, sys.orig_argv, environ)  # noqa: S606  (ourselves, with the same arguments)
    return [name for name in os.environ.pop(REMOVED, "").split(",") if name]
