"""MSCCL algorithms written for tests: the shapes that MSCCLang's examples compile to."""

from __future__ import annotations


def document(
    attributes: dict[str, object], gpus: list[list[tuple[int, int, int, list[str]]]]
) -> bytes:
    """XML of an algorithm; a thread block is (send, recv, chan, steps)."""
    head = " ".join(f'{key}="{value}"' for key, value in attributes.items())
    lines = [f"<algo {head}>"]
    for rank, blocks in enumerate(gpus):
        lines.append(f'  <gpu id="{rank}" i_chunks="1" o_chunks="1" s_chunks="1">')
        for number, (send, receive, channel, steps) in enumerate(blocks):
            lines.append(f'    <tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">')
            lines += [step.replace("<step", f'<step s="{i}"', 1) for i, step in enumerate(steps)]
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>"]).encode()


def step(kind: str, count: int = 1, depends_on: tuple[int, int] = (-1, -1)) -> str:
    """One step; offsets do not matter to a reader."""
    block, at = depends_on
    return (
        f'      <step type="{kind}" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="{count}" '
        f'depid="{block}" deps="{at}" hasdep="0"/>'
    )


def header(op: str, nranks: int, chunks: int, **more: object) -> dict[str, object]:
    """Attributes of an algorithm, with those of newer executors."""
    return {
        "name": "test", "proto": "Simple", "nchannels": 1, "nchunksperloop": chunks,
        "ngpus": nranks, "coll": op, "inplace": 1, "outofplace": 1, "minBytes": 0, "maxBytes": 0,
    } | more  # fmt: skip


def ring_all_reduce(nranks: int, **more: object) -> bytes:
    """One thread block per GPU: send, n−2 receive-reduce-sends, … as the ring does it."""
    middle = [step("rrs")] * (nranks - 2)
    onward = [step("rcs")] * (nranks - 2)
    steps = [step("s"), *middle, step("rrcs"), *onward, step("r")]
    gpus = [[((rank + 1) % nranks, (rank - 1) % nranks, 0, steps)] for rank in range(nranks)]
    return document(header("allreduce", nranks, nranks, **more), gpus)


def all_pairs_all_gather(nranks: int, **more: object) -> bytes:
    """A thread block per peer: send the own chunk, receive the peer's."""
    gpus = [
        [(peer, peer, 0, [step("s"), step("r")]) for peer in range(nranks) if peer != rank]
        for rank in range(nranks)
    ]
    return document(header("allgather", nranks, nranks, **more), gpus)
