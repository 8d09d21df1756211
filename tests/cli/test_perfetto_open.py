"""A trace is served to the page of Perfetto, once."""

from __future__ import annotations

import threading
import urllib.request
from pathlib import Path
from queue import Queue
from urllib.error import HTTPError

import pytest

from collscope.errors import InputError
from collscope.reports.predict.serve import PAGE, serve_once


def test_the_page_fetches_the_file_once(tmp_path: Path) -> None:
    path = tmp_path / "a trace.json"
    path.write_text("[]")
    addresses: Queue[str] = Queue()
    server = threading.Thread(target=serve_once, args=(path, addresses.put, 0))
    server.start()
    page, _, address = addresses.get(timeout=10).partition("/#!/?url=")
    assert page == PAGE
    with pytest.raises(HTTPError):
        urllib.request.urlopen(address.rpartition("/")[0] + "/other.json", timeout=10)
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert answer.read() == b"[]"
    server.join(10)
    assert not server.is_alive()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")

    def again(address: str) -> None:
        port = int(address.rpartition(":")[2].partition("/")[0])
        with pytest.raises(InputError, match="Stop the program that uses it"):
            serve_once(tmp_path / "a.json", print, port)
        threading.Thread(
            target=lambda: urllib.request.urlopen(address.partition("?url=")[2], timeout=10).read()
        ).start()

    serve_once(tmp_path / "a.json", again, 0)
