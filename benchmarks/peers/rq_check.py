"""RQ with a job per check: ``python -m benchmarks.peers.rq_check stock|preloaded|simple|give``.

``stock`` is ``rq worker``: it forks for every job, and the fork imports the job's modules. ``preloaded`` imports them
before it forks, as RQ's documentation advises. ``simple`` does not fork.
"""

import sys
from functools import cache

import httpx
from redis import Redis
from rq import Queue, SimpleWorker, Worker
from rq.cli.cli import main as rq_command

from benchmarks.peers.plain import HEADERS, PARAMS, REDIS_URL, RESULTS, result, url, waiting


@cache
def client() -> httpx.Client:
    """Return this process's client."""
    return httpx.Client(headers=HEADERS, params=PARAMS, trust_env=False)


@cache
def redis() -> Redis:
    """Return this process's connection."""
    return Redis.from_url(REDIS_URL)


def check(voice_id: str) -> None:
    """Make one check and store its result."""
    redis().hset(RESULTS, voice_id, result(client().get(url(voice_id)).content))


def give() -> None:
    """Enqueue a job for every id that waits."""
    ids = waiting(redis())
    queue = Queue("bench", connection=redis())
    queue.enqueue_many([Queue.prepare_data("benchmarks.peers.rq_check.check", (voice_id,)) for voice_id in ids])


def main() -> None:
    """Run the mode that the first argument names."""
    match sys.argv[1]:
        case "give":
            give()
        case "stock":
            rq_command(["worker", "--url", REDIS_URL, "--quiet", "bench"])
        case "preloaded":
            Worker(["bench"], connection=Redis.from_url(REDIS_URL)).work(logging_level="WARNING")
        case "simple":
            SimpleWorker(["bench"], connection=Redis.from_url(REDIS_URL)).work(logging_level="WARNING")


if __name__ == "__main__":
    main()
