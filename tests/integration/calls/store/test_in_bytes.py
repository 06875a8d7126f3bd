"""What the commands answer, from a real Redis, is what their types say."""

from redis.asyncio import Redis

from callkeeper.calls.store.in_bytes import in_bytes


async def test_strings_are_bytes(redis: Redis) -> None:
    """A client that decodes nothing answers with bytes, also for names, members and fields of a stream."""
    client = in_bytes(redis)
    await client.set("s", "1")
    await client.hset("h", mapping={"a": "1"})
    await client.zadd("z", {"a": 1.0})
    await client.sadd("m", "a")
    entry = await client.xadd("x", {"a": "1"}, minid=0, approximate=True)
    assert (await client.get("s"), await client.mget(["s", "none"])) == (b"1", [b"1", None])
    assert await client.hgetall("h") == {b"a": b"1"}
    assert (await client.hkeys("h"), await client.hvals("h"), await client.hmget("h", "a", "b")) == (
        [b"a"],
        [b"1"],
        [b"1", None],
    )
    assert await client.zrange("z", 0, -1) == [b"a"]
    assert await client.zrange("z", 0, -1, withscores=True) == [(b"a", 1.0)]
    assert await client.zrangebyscore("z", "-inf", "+inf", withscores=True) == [(b"a", 1.0)]
    assert await client.smembers("m") == {b"a"}
    assert await client.xrange("x", "-", "+", count=1) == [(entry, {b"a": b"1"})]
    assert [key async for key in client.scan_iter("s", count=10)] == [b"s"]


async def test_pipeline_collects_commands(redis: Redis) -> None:
    """Its commands return the pipeline, and their answers come together."""
    assert await in_bytes(redis).pipeline(transaction=False).set("s", "1").get("s").execute() == [True, b"1"]
