"""A certified OpenID provider as a process, and a proxy in front of it that can change its answers."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.http_servers import serving
from tests.ports import free_port

FOLDER = Path(__file__).parent / "provider"
CLIENT = "callkeeper"
CLIENT_SECRET = "canary-client-5d0b7f2c91-4c07a65e93d2"
ROLES = "voice-viewers=viewer, voice-agents=agent, voice-leads=supervisor@cu-1, voice-admins=admin"
MISSING = "there is no oidc-provider; run: cd tests/people/provider && npm ci (make people does)"


@dataclass
class ProviderProcess:
    """A provider that can be stopped and started."""

    port: int
    issuer: str
    redirect_uri: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the provider, and wait until it listens."""
        node = shutil.which("node")
        assert node is not None
        assert (FOLDER / "node_modules" / "oidc-provider").is_dir(), MISSING
        arguments = (str(self.port), self.issuer, self.redirect_uri, CLIENT, CLIENT_SECRET)
        self.process = subprocess.Popen(  # noqa: S603
            [node, "provider.mjs", *arguments], cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.strip() == b"listening":
                return
        raise AssertionError("the provider did not start")

    def stop(self) -> None:
        """End the process."""
        if self.process is not None and self.process.stdout is not None:
            self.process.kill()
            self.process.wait(10)
            self.process.stdout.close()
            self.process = None


@contextmanager
def provider(public_url: str, *, issuer: str | None = None) -> Iterator[ProviderProcess]:
    """Run a provider that redirects people to a public address after their login."""
    port = free_port()
    running = ProviderProcess(port, issuer or f"http://127.0.0.1:{port}", f"{public_url}/login/callback")
    running.start()
    try:
        yield running
    finally:
        running.stop()


def settings(provider: ProviderProcess, public_url: str) -> dict[str, str]:
    """Return callkeeper's settings for a provider."""
    return {
        "CALLKEEPER_OIDC_ISSUER": provider.issuer,
        "CALLKEEPER_OIDC_CLIENT_ID": CLIENT,
        "CALLKEEPER_OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "CALLKEEPER_OIDC_ROLES": ROLES,
        "CALLKEEPER_PUBLIC_URL": public_url,
    }


@dataclass
class Box:
    """A proxy in front of a provider. ``spoil`` changes its tokens; ``keys`` are added to the public keys."""

    url: str
    target: str = ""
    spoil: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    keys: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Return the provider's answer, changed by ``spoil`` and ``keys`` if they are set."""
        with httpx.Client(trust_env=False) as client:
            url = self.target + request.url.raw_path.decode()
            answer = client.request(request.method, url, headers=request.headers, content=request.content)
        path = request.url.path
        changed: dict[str, Any] | None = None
        if path == "/token" and self.spoil is not None and answer.status_code == 200:
            changed = self.spoil(answer.json())
        if path == "/jwks" and self.keys:
            changed = {"keys": [*answer.json()["keys"], *self.keys]}
        if changed is None:
            return answer
        return httpx.Response(200, content=json.dumps(changed).encode(), headers={"content-type": "application/json"})


@contextmanager
def box() -> Iterator[Box]:
    """Run a proxy. Its provider is set later."""
    found = Box("")
    with serving(found) as port:
        found.url = f"http://127.0.0.1:{port}"
        yield found
