"""Reductions."""

from __future__ import annotations

from enum import Enum


class Redop(Enum):
    """Reduction; the value is the name that is printed and stored."""

    __hash__ = object.__hash__  # as of Op

    SUM = "Sum"
    PROD = "Prod"
    MAX = "Max"
    MIN = "Min"
    AVG = "Avg"
    CUSTOM = "Custom"  # created at run time: PreMulSum

    def __str__(self) -> str:
        """The printed name."""
        return self.value

    @property
    def code(self) -> int:
        """Value in ncclRedOp_t (note that 2 is Max and 3 is Min); 5 and above are custom."""
        return _BY_CODE.index(self)

    @classmethod
    def of_label(cls, label: str | None) -> Redop | None:
        """Reduction with this value; None when there is none."""
        return _BY_LABEL.get(label or "")


_BY_CODE = (Redop.SUM, Redop.PROD, Redop.MAX, Redop.MIN, Redop.AVG, Redop.CUSTOM)
_BY_LABEL = {r.value: r for r in Redop}
# test_opnames of nccl-tests src/common.cu ("mulsum"); names of ROCm/rccl tools/rccl_replayer.
_BY_NAME = {
    **{r.value.lower(): r for r in Redop},
    "mulsum": Redop.CUSTOM,
    "product": Redop.PROD,
    "average": Redop.AVG,
}


def redop_of(code: int) -> Redop:
    """Reduction of a logged code; 5 and above are created at run time (PreMulSum): Custom."""
    return _BY_CODE[code] if 0 <= code < len(_BY_CODE) else Redop.CUSTOM


def parse_redop(name: str) -> Redop | None:
    """Reduction by a benchmark's or a person's name for it; None for another, and for "none"."""
    return _BY_NAME.get(name.strip().lower())
