"""Celery with a task per check and threads: ``python -m benchmarks.peers.celery_check worker|give``."""

import logging
import sys
from functools import cache

import httpx
from celery import Celery
from redis import Redis

from benchmarks.peers.plain import HEADERS, PARAMS, REDIS_URL, RESULTS, result, url, waiting

THREADS = 100

app = Celery("bench", broker=REDIS_URL)
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=4, broker_connection_retry_on_startup=True)


@cache
def client() -> httpx.Client:
    """Return the client that all threads share."""
    limits = httpx.Limits(max_connections=THREADS, max_keepalive_connections=THREADS)
    return httpx.Client(headers=HEADERS, params=PARAMS, trust_env=False, limits=limits)


@cache
def redis() -> Redis:
    """Return the pool of connections that all threads share."""
    return Redis.from_url(REDIS_URL)


def _check(voice_id: str) -> None:
    """Make one check and store its result."""
    redis().hset(RESULTS, voice_id, result(client().get(url(voice_id)).content))


check = app.task(name="check")(_check)


def main() -> None:
    """Run the mode that the first argument names."""
    if sys.argv[1] == "give":
        with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
            for voice_id in waiting(redis()):
                check.apply_async((voice_id,), producer=producer)
        return
    logging.getLogger("httpx").setLevel(logging.WARNING)
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR")
    app.worker_main(["worker", "--pool", "threads", "--concurrency", str(THREADS), *quiet])


if __name__ == "__main__":
    main()
