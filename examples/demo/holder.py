"""Holds `order_lock`: for so many seconds, or until it is told that the lock is lost.

python holder.py URL [SECONDS]
"""

import json
import sys
import threading
import time

import bandog


def report(event: str, text: str) -> None:
    print(json.dumps({"at": time.monotonic(), "event": event, "text": text}), flush=True)


def main(url: str, seconds: float | None = None) -> None:
    with bandog.connect(url, watchdog=6) as client:
        report("waiting", "asks for order_lock")
        try:
            with client.lock("order_lock") as held:
                report("held", "has order_lock")
                stop = threading.Event()
                held.on_lost(stop.set)
                if stop.wait(seconds):
                    report("told", f"is told: the lock is lost ({held.lost}), valid is {held.valid}")
                else:
                    report("releasing", "is done and releases")
        except bandog.LockLost as lost:
            report("raised", f"LockLost at the end of the block: {lost}")


if __name__ == "__main__":
    main(sys.argv[1], *(float(text) for text in sys.argv[2:]))
