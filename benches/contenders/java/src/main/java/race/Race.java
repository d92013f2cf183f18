package race;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.BiFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The scenarios of the race, the same for every Java contender: {@code <program> <scenario> <url> <json>}. */
final class Race {
    /** One client of its own, whose locks live for the lease it was made with. */
    interface Party {
        /** A short section, one thread at a time. */
        Section lock(String name);

        /** Acquires, and releases what was acquired, without a thread that waits. */
        CompletionStage<Void> pairAsync(String name, long owner);

        /** Takes a lock for long, renewed by the library itself. */
        CompletionStage<Void> keepAsync(String name);

        /** How many of these keys the server has. */
        long count(String... names);

        void close();
    }

    interface Section {
        void acquire();

        void release();
    }

    private static final long LEASE = 30_000;
    private static final int BATCH = 1000;
    private static final int FIRST = 200;
    // Until the compiler has settled.
    private static final int WARM_PAIRS = 20_000;
    private static final long WARM_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final BiFunction<String, Long, Party> open;
    private final String url;
    private final String json;

    private Race(BiFunction<String, Long, Party> open, String url, String json) {
        this.open = open;
        this.url = url;
        this.json = json;
    }

    static void run(BiFunction<String, Long, Party> open, String[] args) {
        // The library's threads would keep a process alive whose race has failed.
        try {
            say(new Race(open, args[1], args[2]).scenario(args[0]));
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private String scenario(String name) throws Exception {
        return switch (name) {
            case "pair" -> pair();
            case "storm" -> storm();
            case "handoff" -> handoff();
            case "contend" -> contend();
            case "held" -> held();
            case "blocked" -> blocked();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private String pair() {
        int pairs = (int) number("pairs");
        warm(Long.MAX_VALUE);
        Section lock = open.apply(url, LEASE).lock(name());
        pairs(lock, Math.max(FIRST, pairs / 10));
        long[] took = new long[pairs];
        for (int n = 0; n < pairs; n++) {
            long start = System.nanoTime();
            lock.acquire();
            lock.release();
            took[n] = System.nanoTime() - start;
        }
        return percentiles(took);
    }

    private String storm() {
        warm(Long.MAX_VALUE);
        Party party = open.apply(url, LEASE);
        double seconds = number("seconds");
        flood(party, Math.max(3, seconds / 10));
        return "{\"pairs_per_s\": " + flood(party, seconds) + "}";
    }

    /** As many loops as are asked for, each with a lock of its own. A thousand threads would cost the library more. */
    private double flood(Party party, double seconds) {
        int inflight = (int) number("inflight");
        long span = (long) (seconds * 1e9);
        long end = System.nanoTime() + span;
        LongAdder done = new LongAdder();
        CompletableFuture<?>[] loops = new CompletableFuture<?>[inflight];
        for (int k = 0; k < inflight; k++) {
            loops[k] = new CompletableFuture<Void>();
            loop(party, name() + ":" + k, k, end, done, loops[k]);
        }
        CompletableFuture.allOf(loops).join();
        return done.sum() / seconds;
    }

    private static void loop(
            Party party, String name, long owner, long end, LongAdder done, CompletableFuture<?> over) {
        party.pairAsync(name, owner).whenComplete((nothing, error) -> {
            if (error != null) {
                over.completeExceptionally(error);
            } else if (System.nanoTime() >= end) {
                over.complete(null);
            } else {
                done.increment();
                loop(party, name, owner, end, done, over);
            }
        });
    }

    private String handoff() throws Exception {
        int rounds = (int) number("rounds");
        warm(Long.MAX_VALUE);
        Section one = open.apply(url, LEASE).lock(name());
        Section two = open.apply(url, LEASE).lock(name());
        pairs(one, FIRST);
        pairs(two, FIRST);
        for (int n = 0; n < Math.max(20, rounds / 10); n++) {
            pass(one, two);
        }
        long[] took = new long[rounds];
        for (int n = 0; n < rounds; n++) {
            took[n] = pass(one, two);
        }
        return percentiles(took);
    }

    private static long pass(Section one, Section two) throws Exception {
        one.acquire();
        CompletableFuture<Long> got = new CompletableFuture<>();
        Thread waiter = new Thread(() -> {
            two.acquire();
            long now = System.nanoTime();
            two.release();
            got.complete(now);
        });
        waiter.start();
        // Not always the same: whoever polls is to be met at any point of its interval.
        Thread.sleep(20 + ThreadLocalRandom.current().nextInt(100));
        long left = System.nanoTime();
        one.release();
        return got.get() - left;
    }

    private String contend() throws Exception {
        int tasks = (int) number("tasks");
        long hold = (long) number("hold_ms");
        long start = (long) (number("start_at") * 1000);
        long end = start + (long) (number("seconds") * 1000);
        Party party = open.apply(url, LEASE);
        pairs(party.lock(name() + ":first:" + ProcessHandle.current().pid()), FIRST);
        warm(start - 5000);
        if (System.currentTimeMillis() > start) {
            throw new IllegalStateException("ready only after the start");
        }
        List<Lane> lanes = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int k = 0; k < tasks; k++) {
            Lane lane = new Lane();
            Thread thread = new Thread(() -> {
                Section lock = party.lock(name());
                pause(start - System.currentTimeMillis());
                for (long asked = start; asked < end; asked = System.currentTimeMillis()) {
                    lane.ask(asked);
                    lock.acquire();
                    if (lane.got(end)) {
                        pause(hold);
                        lane.over();
                    }
                    lock.release();
                }
            });
            lanes.add(lane);
            threads.add(thread);
            thread.start();
        }
        pause(end - System.currentTimeMillis());
        String acquired = lanes.stream().map(Lane::acquired).toList().toString();
        String longest = lanes.stream().map(lane -> lane.longest(end)).toList().toString();
        String held = lanes.stream().map(Lane::held).toList().toString();
        // Time to release; but a waiter that missed its message may sleep for long.
        for (Thread thread : threads) {
            thread.join(Math.max(1, end + 1000 - System.currentTimeMillis()));
        }
        return "{\"acquired\": " + acquired + ", \"longest_wait_ms\": " + longest + ", \"held_ms\": " + held + "}";
    }

    private String held() throws Exception {
        int locks = (int) number("locks");
        warm(Long.MAX_VALUE);
        Party party = open.apply(url, (long) number("lease_ms"));
        long before = rss();
        long start = System.nanoTime();
        Semaphore room = new Semaphore(BATCH);
        CompletableFuture<?>[] taken = new CompletableFuture<?>[locks];
        for (int n = 0; n < locks; n++) {
            room.acquire();
            CompletionStage<Void> one = party.keepAsync(name() + ":" + n);
            taken[n] = one.whenComplete((nothing, error) -> room.release()).toCompletableFuture();
        }
        CompletableFuture.allOf(taken).join();
        double took = (System.nanoTime() - start) / 1e9;
        double cpu = cpu();
        Thread.sleep((long) (number("seconds") * 1000));
        cpu = cpu() - cpu;
        long grown = rss() - before;
        long there = 0;
        for (int n = 0; n < locks; n += BATCH) {
            String[] names = new String[Math.min(BATCH, locks - n)];
            for (int k = 0; k < names.length; k++) {
                names[k] = name() + ":" + (n + k);
            }
            there += party.count(names);
        }
        return String.format(
                Locale.ROOT,
                "{\"took_s\": %f, \"lost\": %d, \"cpu_s\": %f, \"rss_bytes\": %d}",
                took, locks - there, cpu, grown);
    }

    /** Java has neither a loop nor a GIL to block: what stands still is the thread that holds the lock. */
    private String blocked() throws Exception {
        long lease = (long) number("lease_ms");
        open.apply(url, lease).keepAsync(name()).toCompletableFuture().join();
        say("{\"ready\": true, \"key\": \"" + name() + "\"}");
        Thread.sleep(3 * lease);
        return "{\"done\": true}";
    }

    /**
     * Runs pairs until the compiler has settled, but not past {@code latest}. With a client of its own: one that has
     * just locked and unlocked thousands of times still has a timer of each, and would renew that much more often.
     */
    private void warm(long latest) {
        Party party = open.apply(url, LEASE);
        Section lock = party.lock(name() + ":warm:" + ProcessHandle.current().pid());
        long end = System.nanoTime() + WARM_NANOS;
        for (int n = 0; n < WARM_PAIRS || System.nanoTime() < end; n += 20) {
            if (System.currentTimeMillis() >= latest) {
                break;
            }
            pairs(lock, 20);
        }
        party.close();
    }

    private static void pairs(Section lock, int pairs) {
        for (int n = 0; n < pairs; n++) {
            lock.acquire();
            lock.release();
        }
    }

    private static String percentiles(long[] nanos) {
        Arrays.sort(nanos);
        double p50 = nanos[nanos.length / 2] / 1e3;
        double p99 = nanos[(int) (nanos.length * 0.99)] / 1e3;
        return "{\"p50_us\": " + p50 + ", \"p99_us\": " + p99 + "}";
    }

    private String name() {
        return field("\"([^\"]*)\"", "name");
    }

    private double number(String field) {
        return Double.parseDouble(field("([-+.0-9eE]+)", field));
    }

    private String field(String value, String name) {
        Matcher found = Pattern.compile("\"" + name + "\"\\s*:\\s*" + value).matcher(json);
        if (!found.find()) {
            throw new IllegalArgumentException("no " + name + " in " + json);
        }
        return found.group(1);
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(Math.max(0, millis));
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static double cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    private static long rss() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
            }
        }
        throw new IOException("no VmRSS");
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
