package race;

import java.util.concurrent.CompletionStage;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson with its defaults. The watchdog renews at a third of the lease, a hundred locks in one script; a waiter is
 * woken by a message. Threads take turns by lock and unlock; where many are in flight its async methods do, without
 * threads.
 */
final class Redisson implements Race.Party {
    private final RedissonClient client;

    private Redisson(String url, long lease) {
        Config config = new Config().setLockWatchdogTimeout(lease);
        config.useSingleServer().setAddress(url);
        client = org.redisson.Redisson.create(config);
    }

    public static void main(String[] args) {
        Race.run(Redisson::new, args);
    }

    @Override
    public Race.Section lock(String name) {
        RLock lock = client.getLock(name);
        return new Race.Section() {
            @Override
            public void acquire() {
                lock.lock();
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }

    @Override
    public CompletionStage<Void> pairAsync(String name, long owner) {
        RLock lock = client.getLock(name);
        return lock.lockAsync(owner).thenCompose(nothing -> lock.unlockAsync(owner));
    }

    @Override
    public CompletionStage<Void> keepAsync(String name) {
        return client.getLock(name).lockAsync();
    }

    @Override
    public long count(String... names) {
        return client.getKeys().countExists(names);
    }

    @Override
    public void close() {
        client.shutdown();
    }
}
