"""A name server with one answer to all questions."""

import socketserver
import struct
import threading
from ipaddress import IPv4Address

HEADER = struct.Struct(">6H")
A, IN = 1, 1


class NameServer:
    """Answers `addresses`, which may change, to every question for type A; nothing to others."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                packet, socket = self.request
                socket.sendto(outer.answer(packet), self.client_address)

        self._server = socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, packet: bytes) -> bytes:
        end = packet.index(b"\0", HEADER.size) + 5
        question = packet[HEADER.size : end]
        (asked,) = struct.unpack(">H", question[-4:-2])
        found = self.addresses if asked == A else []
        # A response, recursion desired and available; each record names the question by a pointer.
        header = HEADER.pack(HEADER.unpack_from(packet)[0], 0x8180, 1, len(found), 0, 0)
        record = struct.pack(">3HIH", 0xC00C, A, IN, 1, 4)
        return header + question + b"".join(record + IPv4Address(address).packed for address in found)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
