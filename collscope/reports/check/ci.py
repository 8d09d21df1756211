"""A verdict for CI: JUnit XML and GitHub annotations."""

from __future__ import annotations

from collscope.reports.check.answer import Check, ClassVerdict
from collscope.reports.check.verdict import Verdict
from collscope.reports.check.verdict_text import scope_words, step_words, why
from collscope.reports.rendering.class_words import class_name
from collscope.reports.rendering.note_words import note_words
from collscope.writing import one_line

_UNJUDGED = {  # outcomes, and their messages in JUnit
    "noisy": "Too noisy to judge.",
    "unknown": "Noise unknown: there is a single value. Measure more often.",
    "baseline wrong": "The baseline's results are wrong, so there is no time to compare with.",
    "baseline failed": "The baseline failed, so there is no time to compare with.",
}
_BROKEN = ("wrong results", "failed")  # of the current label


def junit(check: Check) -> str:
    """One test case for the verdict and one per class; a noisy class is skipped, not passed.

    A slower class fails only when the verdict is a regression: alone it may be chance. A wrong
    result always fails.
    """
    from xml.etree import ElementTree  # noqa: PLC0415 - the other formats need none

    failed = check.verdict is Verdict.REGRESSION
    bad = [r for r in check.classes if r.outcome in (("slower", *_BROKEN) if failed else _BROKEN)]
    unsure = check.verdict is Verdict.NO_VERDICT
    noisy = [r for r in check.classes if r.outcome in _UNJUDGED]
    step = check.decision.step
    slow = step is not None and step.slower
    dim = step is not None and step.doubt is not None and not (step.slower or step.faster)
    suite = ElementTree.Element(
        "testsuite", name=f"collscope check {check.baseline} {check.current}",
        tests=str(len(check.classes) + 1 + (step is not None)),
        failures=str(len(bad) + failed + slow),
        errors="0", skipped=str(len(noisy) + unsure + dim),
    )  # fmt: skip
    case = ElementTree.SubElement(suite, "testcase", classname="collscope.check", name="verdict")
    if failed:
        ElementTree.SubElement(case, "failure", message=why(check.decision)).text = scope_words(
            check
        )
    elif unsure:
        ElementTree.SubElement(case, "skipped", message=why(check.decision))
    output = (
        f"{check.verdict.value}: {why(check.decision)} {scope_words(check)}",
        *map(note_words, check.notes),
    )
    ElementTree.SubElement(case, "system-out").text = "\n".join(map(one_line, output))
    if step is not None:
        case = ElementTree.SubElement(suite, "testcase", classname="collscope.check", name="step")
        if slow:
            ElementTree.SubElement(case, "failure", message=step_words(step))
        elif dim:
            ElementTree.SubElement(case, "skipped", message=step_words(step))
    for row in check.classes:
        case = ElementTree.SubElement(
            suite, "testcase", classname="collscope.check", name=class_name(row.key),
            time=f"{(row.current_ns or 0.0) / 1000 / 1e6:.9f}",
        )  # fmt: skip
        if row in bad:
            ElementTree.SubElement(case, "failure", message=_finding(row))
        elif row.outcome in _UNJUDGED:
            ElementTree.SubElement(case, "skipped", message=_UNJUDGED[row.outcome])
    ElementTree.indent(suite)
    text = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
    # XML has no way to write most control characters, and labels may hold them.
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _finding(row: ClassVerdict) -> str:
    if row.baseline_ns is None or row.current_ns is None:
        return row.outcome
    return (
        f"{row.baseline_ns / 1000:.2f} us -> {row.current_ns / 1000:.2f} us,"
        f" {row.ratio:.3f} times as long"
    )


def github(check: Check) -> str:
    """Workflow commands: one for the verdict, one per changed class."""
    level = {Verdict.REGRESSION: "error", Verdict.NO_VERDICT: "warning"}.get(
        check.verdict, "notice"
    )
    lines = [
        _command(
            level,
            f"collscope: {check.verdict.value}",
            f"{why(check.decision)} {scope_words(check)}",
        )
    ]
    for row in check.classes:
        if row.outcome in ("slower", *_BROKEN):
            sure = check.verdict is Verdict.REGRESSION or row.outcome in _BROKEN
            severity = "error" if sure else "warning"
            lines.append(_command(severity, class_name(row.key), _finding(row)))
    for value in check.impossible:
        text = (
            f"{value.busbw_gbps:.4g} GB/s of {value.label} is above the limit,"
            f" {value.limit_gbps:.4g} GB/s"
        )
        lines.append(_command("warning", f"impossible: {class_name(value.key)}", text))
    return "\n".join(lines) + "\n"


def _command(level: str, title: str, text: str) -> str:
    """One workflow command, with the characters escaped that end its parts.

    source  actions/toolkit packages/core/src/command.ts
    """
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    title = title.replace("%", "%25").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{text}"
