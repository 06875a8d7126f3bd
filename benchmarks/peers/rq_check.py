"""RQ with a job per check: ``python -m benchmarks.peers.rq_check stock|simple|give``.

``stock`` is ``rq worker``, which forks for every job; ``simple`` does not fork.
"""

import sys
from functools import cache

import httpx
from redis import Redis
from rq import Queue, SimpleWorker
from rq.cli.cli import main as rq_command

from benchmarks.peers.plain import IDS, REDIS_URL, RESULTS, SERVICE_URL


@cache
def client() -> httpx.Client:
    """Return this process's client."""
    headers = {"SsoToken": "bench", "InstitutionKey": "cu-1", "RequestedBy": "bench"}
    return httpx.Client(headers=headers, params={"checkVoiceAuthentication": "true"}, trust_env=False)


@cache
def redis() -> Redis:
    """Return this process's connection."""
    return Redis.from_url(REDIS_URL)


def check(voice_id: str) -> None:
    """Make one check and store its result."""
    call = client().get(f"{SERVICE_URL}/external/calls/{voice_id}/details").json()["phoneCall"]
    redis().hset(RESULTS, voice_id, f"{call['status']} {call['metaData']['vendorPolicies']} {call['callEnded']}")


def main() -> None:
    """Run the mode that the first argument names."""
    match sys.argv[1]:
        case "give":
            ids = map(bytes.decode, redis().lrange(IDS, 0, -1))  # type: ignore[arg-type]  # bytes here
            jobs = [Queue.prepare_data("benchmarks.peers.rq_check.check", (voice_id,)) for voice_id in ids]
            Queue("bench", connection=redis()).enqueue_many(jobs)
        case "stock":
            rq_command(["worker", "--url", REDIS_URL, "--quiet", "bench"])
        case "simple":
            SimpleWorker(["bench"], connection=redis()).work(logging_level="WARNING")


if __name__ == "__main__":
    main()
