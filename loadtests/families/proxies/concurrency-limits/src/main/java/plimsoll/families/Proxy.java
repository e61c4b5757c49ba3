package plimsoll.families;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.netflix.concurrency.limits.Limiter;
import com.netflix.concurrency.limits.limiter.SimpleLimiter;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;

/**
 * A reverse proxy that limits each node by one of concurrency-limits' limits, and does nothing else.
 *
 * <p>It takes a request to the node with the fewest in flight that admits it, and answers 503 where none does.
 */
public final class Proxy {
    // As HAProxy's in haproxy/examples.
    private static final Duration CONNECT_TIMEOUT = Duration.ofMillis(500);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(CONNECT_TIMEOUT).build();
    private final List<Node> nodes;

    private record Node(String name, String address, SimpleLimiter<Void> limiter) {}

    private record Choice(Node node, int inFlight) {}

    private record Config(
            String listen, String admin, Map<String, String> nodes, String policy, Limits.Settings settings) {}

    private record State(int limit, int in_flight) {}

    private Proxy(Config config) {
        nodes = config.nodes().entrySet().stream()
                .map(entry -> new Node(entry.getKey(), entry.getValue(), limiter(config)))
                .toList();
    }

    private static SimpleLimiter<Void> limiter(Config config) {
        return SimpleLimiter.newBuilder().limit(Limits.of(config.policy(), config.settings())).build();
    }

    private List<Node> idlestFirst() {
        List<Choice> order = new ArrayList<>();
        for (Node node : nodes) order.add(new Choice(node, node.limiter.getInflight()));
        Collections.shuffle(order);
        order.sort(Comparator.comparingInt(Choice::inFlight));
        return order.stream().map(Choice::node).toList();
    }

    private void handle(HttpExchange exchange) throws IOException {
        try (exchange) {
            for (Node node : idlestFirst()) {
                Optional<Limiter.Listener> admitted = node.limiter.acquire(null);
                if (admitted.isPresent()) {
                    forward(exchange, node, admitted.get());
                    return;
                }
            }
            exchange.getResponseHeaders().set("Retry-After", "1");
            exchange.getResponseHeaders().set("Plimsoll-Reason", "full");
            answer(exchange, 503, "no node admits it\n".getBytes(StandardCharsets.UTF_8));
        }
    }

    private void forward(HttpExchange exchange, Node node, Limiter.Listener listener) throws IOException {
        HttpResponse<byte[]> answer;
        try {
            URI target = URI.create("http://" + node.address + exchange.getRequestURI());
            byte[] body;
            try (InputStream from = exchange.getRequestBody()) {
                body = from.readAllBytes();
            }
            HttpRequest request = HttpRequest.newBuilder(target)
                    .method(exchange.getRequestMethod(), HttpRequest.BodyPublishers.ofByteArray(body))
                    .build();
            answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
        } catch (IOException error) {
            listener.onDropped();
            System.err.println(node.name + ": " + error);
            answer(exchange, 502, "the node failed\n".getBytes(StandardCharsets.UTF_8));
            return;
        } catch (InterruptedException error) {
            listener.onIgnore();
            Thread.currentThread().interrupt();
            return;
        }
        if (answer.statusCode() >= 500) {
            listener.onDropped();
        } else {
            listener.onSuccess();
        }
        exchange.getResponseHeaders().set("X-Plimsoll-Node", node.name);
        answer(exchange, answer.statusCode(), answer.body());
    }

    private static void answer(HttpExchange exchange, int status, byte[] body) throws IOException {
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        exchange.getResponseBody().write(body);
    }

    /** What the lab asks for: each node's limit and requests in flight. */
    private void state(HttpExchange exchange) throws IOException {
        Map<String, State> found = new LinkedHashMap<>();
        for (Node node : nodes) {
            found.put(node.name, new State(node.limiter.getLimit(), node.limiter.getInflight()));
        }
        byte[] body = JSON.writeValueAsBytes(found);
        try (exchange) {
            answer(exchange, 200, body);
        }
    }

    private static InetSocketAddress address(String text) {
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
    }

    private static Config read(Path path) throws IOException {
        Config config = JSON.readValue(path.toFile(), Config.class);
        if (config.nodes() == null || config.nodes().isEmpty()) {
            throw new IllegalArgumentException("nodes: at least one is needed");
        }
        return config;
    }

    public static void main(String[] words) throws IOException {
        if (words.length == 1 && words[0].equals("--version")) {
            System.out.println("concurrency-limits " + Proxy.class.getPackage().getImplementationVersion());
            return;
        }
        if (words.length != 2 || !words[0].equals("--config")) {
            System.err.println("usage: concurrency-limits --config FILE | --version");
            System.exit(2);
        }
        Config config;
        Proxy proxy;
        try {
            config = read(Path.of(words[1]));
            proxy = new Proxy(config);
        } catch (JsonProcessingException | IllegalArgumentException error) {
            System.err.println(words[1] + ": " + error.getMessage());
            System.exit(1);
            return;
        }
        HttpServer front = HttpServer.create(address(config.listen()), 1024);
        front.createContext("/", proxy::handle);
        front.setExecutor(Executors.newCachedThreadPool());
        HttpServer admin = HttpServer.create(address(config.admin()), 16);
        admin.createContext("/nodes", proxy::state);
        front.start();
        admin.start();
    }
}
