"""The vocabulary: operations, types and the records that parsers give out.

None always means "not in the source". Pointers are ints; times of records are integer ns.
Records of traces hold numpy arrays and are imported from `collscope.model.trace`.
"""

from __future__ import annotations

from collscope.model.busbw import (
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    size_bytes,
    transfers_size_bytes,
)
from collscope.model.collective_class import CollectiveClass, Distance, Gap
from collscope.model.copy_time import CopyTime
from collscope.model.datatype import DATATYPE_NAMES, Datatype, datatype_of, parse_datatype
from collscope.model.diagnostic import Diagnostic, Severity
from collscope.model.interference import Interference
from collscope.model.log import (
    CommEnd,
    CommInit,
    CommTopology,
    Fact,
    LibraryVersion,
    Link,
    LogRecord,
    Setting,
)
from collscope.model.measurement import Measurement, MeasurementSet
from collscope.model.metric import Metric, MetricSet
from collscope.model.op import BufferPlace, Bus, Extent, Op, parse_op
from collscope.model.profile import (
    KernelSpan,
    KernelTotal,
    Profile,
    ProfileSet,
    ProfileTable,
    SizeBin,
)
from collscope.model.redop import Redop, parse_redop, redop_of

__all__ = [
    "DATATYPE_NAMES",
    "BufferPlace",
    "Bus",
    "CollectiveClass",
    "CommEnd",
    "CommInit",
    "CommTopology",
    "CopyTime",
    "Datatype",
    "Diagnostic",
    "Distance",
    "Extent",
    "Fact",
    "Gap",
    "Interference",
    "KernelSpan",
    "KernelTotal",
    "LibraryVersion",
    "Link",
    "LogRecord",
    "Measurement",
    "MeasurementSet",
    "Metric",
    "MetricSet",
    "Op",
    "Profile",
    "ProfileSet",
    "ProfileTable",
    "Redop",
    "Setting",
    "Severity",
    "SizeBin",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "bus_factor",
    "datatype_of",
    "parse_datatype",
    "parse_op",
    "parse_redop",
    "redop_of",
    "size_bytes",
    "transfers_size_bytes",
]
