"""What a page adds to a verdict: the ratio of every class, with the thresholds."""

from __future__ import annotations

from collscope.reports.check.answer import Check
from collscope.reports.rendering.page import Extras, Fact
from collscope.reports.rendering.ratio_figure import (
    RatioPoint,
    curve_name,
    ratio_figure,
    step_facts,
)


def check_extras(found: Check) -> Extras:
    """The verdict's ratios over size, with the thresholds beyond which a change matters."""
    points = [
        RatioPoint(c.outcome, curve_name(c.key), c.key.size_bytes or 0, c.ratio,
               c.low, c.high)
        for c in found.classes if c.ratio is not None
    ]  # fmt: skip
    total = "not known" if found.total_ratio is None else f"{found.total_ratio:.3f} times as long"
    spread = (
        "" if found.total_low is None or found.total_high is None
        else f"{found.total_low:.3f} to {found.total_high:.3f}"
    )  # fmt: skip
    facts = (
        Fact("Verdict", found.verdict.value),
        *step_facts(found.traced),
        Fact(f"All classes, {found.current} against {found.baseline}", total, spread),
        Fact("Classes judged", f"{found.classes_judged} of {found.classes_common}",
             f"{found.classes_missing} missing" if found.classes_missing else ""),
    )  # fmt: skip
    limits = tuple({c.threshold for c in found.classes})[:1]
    figure = ratio_figure(
        "Time of each class against the baseline",
        f"Time of {found.current} divided by time of {found.baseline}: below 1 is faster. Lines "
        "are 95 % intervals. Beyond the dashed line a slowdown matters. Marks of equal size are "
        "drawn side by side.", points, limits,
    )  # fmt: skip
    return Extras(facts, {"": (figure,)} if figure else {})
