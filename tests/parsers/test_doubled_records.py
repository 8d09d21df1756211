"""Records that stand in a file twice, equal in every field, count once."""

from __future__ import annotations

from inputs import ROOT
from readers import parse_recording


def test_a_send_of_inspector_twice() -> None:
    """It has no start, and its number and every other field are those of the line before."""
    text = (ROOT / "samples/recorders/synthetic.inspector-v4.0.log").read_text()
    (send,) = (line for line in text.splitlines() if '"p2p":"Send"' in line)
    recorded = parse_recording([f"{text}{send}\n".encode()], "x.log")
    alone = parse_recording([text.encode()], "x.log")
    assert recorded is not None
    assert alone is not None
    assert len(recorded.calls) == len(alone.calls)
    assert "counted_once" in [d.code for d in recorded.diagnostics]
