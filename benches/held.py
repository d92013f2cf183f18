"""A hundred thousand locks, held through three renewal periods: none may be lost."""

import asyncio
import resource
import sys
import time

from run import Server

import bandog

LOCKS = 100_000
WATCHDOG = 30.0


async def hold(url: str) -> tuple[int, float]:
    async with bandog.connect(url, watchdog=WATCHDOG) as client:
        held = []
        start = time.monotonic()
        for batch in range(0, LOCKS, 1000):
            names = (f"bench:lock:{number:012d}" for number in range(batch, batch + 1000))
            held += await asyncio.gather(*(client.lock(name).acquire_async() for name in names))
        took = time.monotonic() - start
        await asyncio.sleep(WATCHDOG)
        lost = sum(1 for hold in held if not hold.valid)
        return lost, took


def main() -> int:
    server = Server("1")
    try:
        lost, took = asyncio.run(hold(f"redis://127.0.0.1:{server.port}"))
    finally:
        server.stop()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{LOCKS} locks acquired in {took:.1f} s, held for {WATCHDOG:.0f} s (three renewal periods): {lost} lost")
    print(f"memory of the whole process at most {memory:.0f} MiB")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
