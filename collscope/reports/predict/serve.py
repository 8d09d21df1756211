"""A file for ui.perfetto.dev from this machine: the page fetches it, nothing is uploaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

from collscope.errors import InputError

PAGE = "https://ui.perfetto.dev"
PORT = 9001
"""Port that the page's content security policy lets it fetch from 127.0.0.1.

source  https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
"""


def serve_once(path: Path, announce: Callable[[str], None], port: int = PORT) -> None:
    """Serve a file to the page until it was fetched.

    announce  gets the address to open, once the file can be fetched
    port      0: any that is free
    raises    InputError when the port is taken
    """
    try:
        server = HTTPServer(("127.0.0.1", port), _handler(path))
    except OSError as error:
        raise InputError(
            f"port {port}: {error.strerror}. Stop the program that uses it."
        ) from error
    with server:
        address = f"http://127.0.0.1:{server.server_port}/{quote(path.name)}"
        announce(f"{PAGE}/#!/?url={address}")
        while not getattr(server, "fetched", False):
            server.handle_request()


def _handler(path: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Gives one file to one page."""

        def do_GET(self) -> None:
            """Send the file; anything else is not found."""
            if self.path.partition("?")[0] != f"/{quote(path.name)}":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", PAGE)
            self.send_header("Cache-Control", "no-cache")
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            with path.open("rb") as file:
                shutil.copyfileobj(file, self.wfile)
            self.server.fetched = True  # type: ignore[attr-defined]

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    return Handler
