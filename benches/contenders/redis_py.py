"""The lock of redis-py, which every Python program has at hand."""

import redis
from common import address, measure

host, port, pairs = address()
client = redis.Redis(host=host, port=port)
lock = client.lock("bench:redis-py", timeout=30)


def pair() -> None:
    assert lock.acquire()
    lock.release()


measure(pair, pairs)
