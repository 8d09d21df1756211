"""What had to happen before what: the causal graph of a job's recorded steps (pure).

Nodes are starts of rows, ends of collectives, and the moments when a synchronising call let the
host go on. A node's time is the largest of its predecessors' times, each plus a weight:

- host: a launch follows the last synchronising call that its thread waited in, by host work;
- stream: a row follows the row before it on its stream;
- event: a row follows the row of another stream whose event its stream waits for;
- a collective's transfer follows the arrival of its last rank;
- a synchronising call returns when the rows that it names are done.

Few traces show which event a wait names. In others, the order of calls shows it: an event
is recorded behind the row that its stream was given last. Every such guess is a rule of a site (two
streams and what is launched there) and is held against the recorded times of all its occurrences: a
row that started before the end of what it waited for contradicts the rule. Rules that are
contradicted are dropped, single edges that are, too; and a rule that is no more than possible
counts only when the order of calls alone names it.
"""

from __future__ import annotations

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import HostCalls
from collscope.timeline.causes.event_edges import event_edges, join_events
from collscope.timeline.causes.host_record import Polls, read_host
from collscope.timeline.causes.host_side import host_side, join_hosts
from collscope.timeline.causes.nodes import Causes, assemble, part_transfers
from collscope.timeline.causes.placed_rows import place_rows
from collscope.timeline.clocks import Clocks
from collscope.timeline.graph import Graph
from collscope.timeline.waits import CallTimes


def build_graph(
    rows: Rows,
    host: tuple[HostCalls | None, ...],
    calls: Calls,
    times: CallTimes,
    clocks: Clocks,
    polls: Polls | None = None,
) -> Graph:
    """Graph of all ranks on the common clock.

    host   per trace of `rows` its calls, None where the source has none
    polls  waits of the hosts that no call shows
    """
    placed = place_rows(rows, calls, clocks)
    sides, events = [], []
    for trace, calls_of_host in enumerate(host):
        record = read_host(placed, trace, calls_of_host)
        sides.append(host_side(placed, record, polls))
        events.append(event_edges(placed, record, sides[-1].known))
    transfer, alone = part_transfers(placed, calls, times)
    causes = Causes(placed, calls, join_hosts(sides), join_events(events), transfer, alone)
    return assemble(causes)
