"""Words of a prediction that its text and its page have in common."""

from __future__ import annotations

from collscope.reports.predict.answer import PredictionReport
from collscope.reports.predict.new_times import TimesFrom
from collscope.units import decimals, figure


def origin_words(origin: TimesFrom) -> str:
    """Where times come from."""
    words = {
        "measurements": f"measurements with label {origin.name}",
        "traces": f"the traces of run {origin.name}",
        "system": f"the roof of {origin.name}",
        "ceiling": origin.name,
    }[origin.kind]
    return words if origin.against is None else f"{words} against {origin_words(origin.against)}"


def in_range(said: PredictionReport, us: float) -> str:
    """A predicted time in ms, with the digits that the range of the prediction allows."""
    return f"{us / 1000:.{decimals(said.low_us / 1000, said.high_us / 1000)}f}"


def ms(us: float) -> str:
    """A time that was recorded."""
    return figure(us / 1000, 4)


def change_words(said: PredictionReport, new_us: float) -> str:
    """Change of the time, not of the speed: 5 -> 6 ms is 20 % longer."""
    if said.step_us <= 0:
        return "change not defined"
    change, low, high = (
        100 * (us / said.step_us - 1) for us in (new_us, said.low_us, said.high_us)
    )
    digits = min(decimals(low, high), 1)
    percent = f"{abs(change):.{digits}f}"
    if float(percent) == 0:
        if ms(said.step_us) == ms(new_us):
            return "no change"
        percent = f"under {10**-digits:g}"
    return f"{percent} % {'longer' if change > 0 else 'shorter'}"
