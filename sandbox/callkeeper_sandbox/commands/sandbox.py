"""``callkeeper sandbox``: a stand-in for the service, for experiments."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from callkeeper.app.terminal import say

_DEFAULTS_HELP = "The default is public."


# \\b keeps click from filling the paragraph that follows.
_HELP = """Run a stand-in for the voice-verification service until SIGTERM or Ctrl-C.

The first line of its output is its address. There,

\b
  /            is a page: push settings, attempts, live calls
  /external/*  is the interface of the service
  /control     lists what can be scripted and read

\b
Start a call that turns green after 12 s and ends after 40 s:
  curl -s $URL/control/calls --json '{"institution_key": "cu-1",
    "phone_number": "5551000007", "voice_id": "v-1", "script": [
      {"kind": "green", "after_s": 12}, {"kind": "end", "after_s": 40}]}'
Change its state now:
  curl -s $URL/control/calls/v-1/now --json '{"kind": "mfa_validated"}'
Apply the next enroll, then reset its connection:
  curl -s $URL/control/faults --json '{"target": "enroll",
    "action": "reset", "applied": true, "times": 1}'
List the requests that it received:
  curl -s $URL/control/ledger

docs/sandbox.md describes all of it.
"""


@click.command(help=_HELP, short_help="Run a stand-in for the voice-verification service.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 finds a free port.")
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same callers, times and outcomes.")
@click.option(
    "--scenario",
    default="default",
    show_default=True,
    type=click.Choice(["default", "none"]),
    help="`default`: a new call about every 2 s. `none`: only the calls that you add.",
)
@click.option(
    "--gap", default=2.0, show_default=True, type=click.FloatRange(0.01), help="Mean seconds between two calls."
)
@click.option("--push-url", default="", help="Where every institution's call events are pushed.")
@click.option(
    "--push-headers",
    default="",
    envvar="SANDBOX_PUSH_HEADERS",
    help="Headers of the pushes: `Header: value; Header2: value2`.",
)
@click.option(
    "--access-token", default=None, envvar="SANDBOX_ACCESS_TOKEN", help=f"The access token of a login. {_DEFAULTS_HELP}"
)
@click.option("--email", default=None, help="Service account.")
@click.option("--password", default=None, envvar="SANDBOX_PASSWORD", help=f"Its password. {_DEFAULTS_HELP}")
@click.option(
    "--state-file",
    default=None,
    type=click.Path(dir_okay=False, path_type=Path, resolve_path=True),
    help="Keep everything in this file; a restart continues from it.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Answer an open question of the service's document differently; may be repeated. GET /control/variants lists them.",
)
def sandbox(
    host: str,
    port: int,
    seed: int,
    scenario: str,
    gap: float,
    push_url: str,
    push_headers: str,
    access_token: str | None,
    email: str | None,
    password: str | None,
    state_file: Path | None,
    variants: tuple[str, ...],
) -> None:
    """Run a stand-in for the voice-verification service."""
    from callkeeper_sandbox.service.access import Credentials  # noqa: PLC0415  (only this command needs the sandbox)
    from callkeeper_sandbox.service.launch import Launch, build, run  # noqa: PLC0415
    from callkeeper_sandbox.service.server import address, bind  # noqa: PLC0415
    from callkeeper_sandbox.service.state import PushSettings  # noqa: PLC0415
    from callkeeper_sandbox.service.storage import StateFileError  # noqa: PLC0415
    from callkeeper_sandbox.service.variants import VariantError  # noqa: PLC0415

    _refuse_unusable(push_url, push_headers, state_file)
    own = Credentials()
    launch = Launch(
        credentials=Credentials(access_token or own.access_token, email or own.email, password or own.password),
        seed=seed,
        gap_s=gap,
        has_scenario=scenario == "default",
        push=PushSettings(push_url, push_headers) if push_url else None,
        state_file=state_file,
        variants=variants or None,
    )
    try:
        built = build(launch)
    except (StateFileError, VariantError) as error:
        raise click.ClickException(str(error)) from error
    try:
        sock = bind(host, port)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from error
    with sock:
        say(f"sandbox listening on {address(sock)}")
        run(built, sock, state_file)


def _refuse_unusable(push_url: str, push_headers: str, state_file: Path | None) -> None:
    """Refuse options with which pushes or the state would be lost, before anything is started."""
    if push_url and not _is_address(push_url):
        raise click.BadParameter(
            "must be an http or https address with a host, such as http://127.0.0.1:8000/push", param_hint="--push-url"
        )
    if not all(":" in header for header in push_headers.split(";") if header.strip()):
        raise click.BadParameter("must be `Header: value; Header2: value2`", param_hint="--push-headers")
    if push_headers and not push_url:
        raise click.BadParameter("needs --push-url, the address of the pushes", param_hint="--push-headers")
    if state_file is not None and not os.access(state_file.parent, os.W_OK | os.X_OK):
        raise click.BadParameter(
            f"{state_file.parent} is no folder that can be written; create it, or give another path",
            param_hint="--state-file",
        )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
