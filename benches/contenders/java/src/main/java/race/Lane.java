package race;

/** What one of the contending threads has got so far. */
final class Lane {
    private long acquired;
    private long longest;
    private long asked = -1;
    private double held;
    private long since = -1;

    synchronized void ask(long now) {
        asked = now;
    }

    synchronized boolean got(long end) {
        long now = System.currentTimeMillis();
        if (now >= end) {
            return false;
        }
        acquired++;
        longest = Math.max(longest, now - asked);
        asked = -1;
        since = System.nanoTime();
        return true;
    }

    synchronized void over() {
        held += (System.nanoTime() - since) / 1e6;
        since = -1;
    }

    synchronized long acquired() {
        return acquired;
    }

    /** In milliseconds; a hold that the end cuts off was a hold, too. */
    synchronized double held() {
        return since < 0 ? held : held + (System.nanoTime() - since) / 1e6;
    }

    /** A wait that the end cuts off was a wait, too. */
    synchronized long longest(long end) {
        return asked < 0 ? longest : Math.max(longest, end - asked);
    }
}
