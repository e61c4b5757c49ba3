"""HTTP servers in threads of the test, for what stands in for a node or an agent."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.harness.ports import free_ports


class _Server(ThreadingHTTPServer):
    # All of a test's clients may connect at once.
    request_queue_size = 128


class HttpServer:
    """Serves by a handler until it is stopped."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], host: str = "127.0.0.1", port: int = 0) -> None:
        handler.log_message = lambda *_: None
        handler.protocol_version = "HTTP/1.1"
        self.port = port or free_ports(1)[0]
        self._server = _Server((host, self.port), handler)
        self._server.daemon_threads = True
        # A proxy may leave at any time.
        self._server.handle_error = lambda *_: None
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Answering(HttpServer):
    """`say` gives its answers, by method and path, as status and body."""

    def __init__(
        self, say: Callable[[str, str], tuple[int, bytes]], host: str = "127.0.0.1", port: int = 0
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                status, body = say(self.command, self.path)
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

        super().__init__(Handler, host, port)
