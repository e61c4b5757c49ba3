package plimsoll.families;

import com.netflix.concurrency.limits.Limit;
import com.netflix.concurrency.limits.limit.AIMDLimit;
import com.netflix.concurrency.limits.limit.Gradient2Limit;
import com.netflix.concurrency.limits.limit.VegasLimit;
import com.netflix.concurrency.limits.limit.WindowedLimit;
import java.util.concurrent.TimeUnit;

/** A limit by the configuration's policy; the library's defaults stand where a parameter is absent. */
final class Limits {
    /** Parameters; those that a limit does not have are refused. */
    record Settings(
            Integer initial_limit, Double rtt_tolerance, Integer queue_size, Long timeout_ms, Boolean windowed) {
        static final Settings NONE = new Settings(null, null, null, null, null);
    }

    private Limits() {}

    static Limit of(String policy, Settings set) {
        Settings settings = set == null ? Settings.NONE : set;
        Limit limit = bare(policy, settings);
        return Boolean.TRUE.equals(settings.windowed()) ? WindowedLimit.newBuilder().build(limit) : limit;
    }

    private static Limit bare(String policy, Settings set) {
        switch (policy == null ? "" : policy) {
            case "gradient2" -> {
                refuse(set.timeout_ms(), "timeout_ms", policy);
                Gradient2Limit.Builder builder = Gradient2Limit.newBuilder();
                if (set.initial_limit() != null) builder.initialLimit(set.initial_limit());
                if (set.rtt_tolerance() != null) builder.rttTolerance(set.rtt_tolerance());
                if (set.queue_size() != null) builder.queueSize(set.queue_size());
                return builder.build();
            }
            case "vegas" -> {
                refuse(set.timeout_ms(), "timeout_ms", policy);
                refuse(set.rtt_tolerance(), "rtt_tolerance", policy);
                refuse(set.queue_size(), "queue_size", policy);
                VegasLimit.Builder builder = VegasLimit.newBuilder();
                if (set.initial_limit() != null) builder.initialLimit(set.initial_limit());
                return builder.build();
            }
            case "aimd" -> {
                refuse(set.rtt_tolerance(), "rtt_tolerance", policy);
                refuse(set.queue_size(), "queue_size", policy);
                AIMDLimit.Builder builder = AIMDLimit.newBuilder();
                if (set.initial_limit() != null) builder.initialLimit(set.initial_limit());
                if (set.timeout_ms() != null) builder.timeout(set.timeout_ms(), TimeUnit.MILLISECONDS);
                return builder.build();
            }
            default -> throw new IllegalArgumentException(
                    "policy: \"" + policy + "\" is none of gradient2, vegas, aimd");
        }
    }

    private static void refuse(Object value, String name, String policy) {
        if (value != null) {
            throw new IllegalArgumentException("settings: " + name + ": " + policy + " has no such parameter");
        }
    }
}
