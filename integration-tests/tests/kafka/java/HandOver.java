import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.stream.Stream;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The application of the hand-over tests with Kafka Streams; topology.rs is the same one. It runs until its standard
 * input ends, and then leaves the group.
 *
 * <p>Arguments: bootstrap servers, application id, input topic, output topic, state directory.
 */
public class HandOver {
    static final Serde<String> TEXT = Serdes.String();
    static final Duration HOUR = Duration.ofHours(1);
    static final Duration WINDOW = Duration.ofSeconds(10);
    static final Duration GRACE = Duration.ofSeconds(5);
    static final Duration GAP = Duration.ofSeconds(5);
    static final String ASK = "ask";

    static final String[] OWN_STORES = {
        "plain", "plain-mem", "versions", "plain-windows", "plain-windows-mem", "plain-sessions", "plain-sessions-mem",
    };
    static final String[] DSL_STORES = {
        "counts", "counts-mem", "windows", "windows-mem", "closing", "sessions", "sessions-mem",
    };

    public static void main(final String[] args) throws Exception {
        final Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.put("auto.offset.reset", "earliest");
        // By the wall clock, which is not part of what is compared.
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        final KafkaStreams streams = new KafkaStreams(topology(args[2], args[3]), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // Nothing is said, only the end counts.
        }
        final boolean closed = streams.close(CloseOptions.timeout(Duration.ofMinutes(1))
            .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        System.exit(closed ? 0 : 2);
    }

    static Topology topology(final String input, final String output) {
        final StreamsBuilder builder = new StreamsBuilder();
        addOwnStores(builder);
        final Produced<String, String> produced = Produced.with(TEXT, TEXT);
        final KStream<String, String> in = builder.stream(input, Consumed.with(TEXT, TEXT));
        final KStream<String, String> records = in.filter((key, value) -> !ASK.equals(value));
        records.process(Keep::new, OWN_STORES);

        final KGroupedStream<String, String> grouped = records.groupByKey(Grouped.with(TEXT, TEXT));
        grouped.count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"));
        grouped.count(Materialized.as(Stores.inMemoryKeyValueStore("counts-mem")));
        final TimeWindowedKStream<String, String> windowed =
            grouped.windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE));
        final Duration retention = WINDOW.plus(GRACE);
        windowed.count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows"));
        windowed.count(Materialized.as(Stores.inMemoryWindowStore("windows-mem", retention, WINDOW, false)));
        final KTable<Windowed<String>, Long> closing = windowed.count(
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("closing")
                .withKeySerde(TEXT).withValueSerde(Serdes.Long()));
        closing
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("held"))
            .toStream()
            .map((key, count) -> KeyValue.pair(key.key(), "held [" + key.window().start() + "] " + count))
            .to(output, produced);
        final SessionWindowedKStream<String, String> sessions =
            grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(GAP, GRACE));
        sessions.count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("sessions"));
        sessions.count(Materialized.as(Stores.inMemorySessionStore("sessions-mem", GAP.plus(GRACE))));

        final KStream<String, String> left = records.filter((key, value) -> value != null && value.startsWith("l"));
        final KStream<String, String> right = records.filter((key, value) -> value != null && value.startsWith("r"));
        left.outerJoin(right, (l, r) -> "pair " + l + "|" + r,
                JoinWindows.ofTimeDifferenceAndGrace(GAP, Duration.ofSeconds(2)),
                StreamJoined.with(TEXT, TEXT, TEXT).withStoreName("pairs").withName("pairs"))
            .to(output, produced);
        final KTable<String, String> latest = records.toTable(
            Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore("latest", HOUR))
                .withKeySerde(TEXT).withValueSerde(TEXT));
        left.join(latest, (l, value) -> "looked up " + l + "|" + value,
                Joined.with(TEXT, TEXT, TEXT, "looked-up", Duration.ofSeconds(2)))
            .to(output, produced);

        in.filter((key, value) -> ASK.equals(value))
            .process(Tell::new, Stream.of(OWN_STORES, DSL_STORES).flatMap(Stream::of).toArray(String[]::new))
            .to(output, produced);
        return builder.build();
    }

    static void addOwnStores(final StreamsBuilder builder) {
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("plain"), TEXT, TEXT));
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("plain-mem"), TEXT, TEXT));
        builder.addStateStore(Stores.versionedKeyValueStoreBuilder(
            Stores.persistentVersionedKeyValueStore("versions", HOUR), TEXT, TEXT));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("plain-windows", HOUR, WINDOW, false), TEXT, TEXT));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.inMemoryWindowStore("plain-windows-mem", HOUR, WINDOW, false), TEXT, TEXT));
        builder.addStateStore(Stores.sessionStoreBuilder(
            Stores.persistentSessionStore("plain-sessions", HOUR), TEXT, TEXT));
        builder.addStateStore(Stores.sessionStoreBuilder(
            Stores.inMemorySessionStore("plain-sessions-mem", HOUR), TEXT, TEXT));
    }

    /** Puts each record into all stores of processors. */
    static class Keep extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final String key = record.key();
            final String value = record.value();
            final long time = record.timestamp();
            for (final String store : new String[] {"plain", "plain-mem"}) {
                final KeyValueStore<String, String> values = context().getStateStore(store);
                values.put(key, value);
            }
            final VersionedKeyValueStore<String, String> versions = context().getStateStore("versions");
            versions.put(key, value, time);
            for (final String store : new String[] {"plain-windows", "plain-windows-mem"}) {
                final WindowStore<String, String> windows = context().getStateStore(store);
                windows.put(key, value, time);
            }
            for (final String store : new String[] {"plain-sessions", "plain-sessions-mem"}) {
                final SessionStore<String, String> sessions = context().getStateStore(store);
                sessions.put(new Windowed<>(key, new SessionWindow(time, time)), value);
            }
        }
    }

    /** Answers each record with what is in the stores, a line for each entry. */
    static class Tell extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            final List<String> lines = new ArrayList<>();
            for (final String store : new String[] {"plain", "plain-mem"}) {
                final KeyValueStore<String, String> values = context().getStateStore(store);
                each(values.all(), (key, value) -> lines.add(store + " " + key + "=" + value));
            }
            for (final String store : new String[] {"counts", "counts-mem"}) {
                final TimestampedKeyValueStore<String, Long> counts = context().getStateStore(store);
                each(counts.all(), (key, count) -> lines.add(store + " " + key + "=" + stamped(count)));
            }
            for (final String store : new String[] {"plain-windows", "plain-windows-mem"}) {
                final WindowStore<String, String> windows = context().getStateStore(store);
                each(windows.all(), (key, value) ->
                    lines.add(store + " " + key.key() + "[" + key.window().start() + "]=" + value));
            }
            for (final String store : new String[] {"windows", "windows-mem", "closing"}) {
                final TimestampedWindowStore<String, Long> windows = context().getStateStore(store);
                each(windows.all(), (key, count) ->
                    lines.add(store + " " + key.key() + "[" + key.window().start() + "]=" + stamped(count)));
            }
            for (final String key : new String[] {"a", "b", "c"}) {
                sessionsOf(key, lines);
                versionsOf(key, record.timestamp(), lines);
            }
            Collections.sort(lines);
            lines.forEach(line -> context().forward(record.withValue("told " + line)));
            context().forward(record.withValue("told all"));
        }

        void sessionsOf(final String key, final List<String> lines) {
            for (final String store : new String[] {"plain-sessions", "plain-sessions-mem", "sessions", "sessions-mem"}) {
                final SessionStore<String, Object> sessions = context().getStateStore(store);
                each(sessions.fetch(key), (session, value) -> lines.add(store + " " + key + "["
                    + session.window().start() + "," + session.window().end() + "]=" + value));
            }
        }

        void versionsOf(final String key, final long now, final List<String> lines) {
            final VersionedKeyValueStore<String, String> versions = context().getStateStore("versions");
            lines.add("versions " + key + "=" + version(versions.get(key)));
            for (long back = 0; back < 30_000; back += 1_000) {
                lines.add("versions " + key + "@" + (now - back) + "=" + version(versions.get(key, now - back)));
            }
        }

        static String stamped(final ValueAndTimestamp<Long> value) {
            return value.value() + "@" + value.timestamp();
        }

        static String version(final VersionedRecord<String> found) {
            return found == null ? "none" : found.value() + "@" + found.timestamp();
        }

        interface Entry<K, V> {
            void take(K key, V value);
        }

        static <K, V> void each(final KeyValueIterator<K, V> entries, final Entry<K, V> entry) {
            try (entries) {
                while (entries.hasNext()) {
                    final KeyValue<K, V> next = entries.next();
                    entry.take(next.key, next.value);
                }
            }
        }
    }
}
