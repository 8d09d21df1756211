"""The statistics: spread, intervals, effects between two series of samples, discoveries (pure).

Effects are natural logarithms of time ratios: positive is slower, and +0.10 is about 10 %.
Medians and median absolute deviations are used throughout, since launch noise has outliers.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from statistics import NormalDist, fmean, median
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

RESAMPLES = 500  # of a bootstrap
SEED = 20240229  # fixed: the same samples always give the same interval
_POOL = 10_000  # order statistics drawn for each number of samples
_BLOCK = 256  # series at a time: 5 000 of them at once would take 40 MB per array

_NORMAL_FROM = 1e6  # degrees of freedom from which Student's distribution is the normal one
_NEWTON_STEPS = 50
_TERM_OF_ROOT = 1e-10  # a step that changes the root by less is the last
_MOST_TERMS = 2000  # of a continued fraction; about the root of the degrees of freedom are needed
_TERM = 1e-14  # a term that changes it by less is the last
# Standard error of a median over that of a mean for normal samples: sqrt(pi / 2).
_MEDIAN_ERROR = math.sqrt(math.pi / 2)
# Standard deviation over median absolute deviation for normal samples: 1 / quantile(3/4).
MAD_TO_SIGMA = 1 / NormalDist().inv_cdf(0.75)
_ROBUST_FROM = 8  # below this number of samples a MAD is too coarse: the usual formula is taken
_PRIOR_FREEDOM = 4.0  # weight of the variance that classes have in common, as in Smyth 2004
_POOL_FROM = 4  # classes below which there is nothing to pool
ENOUGH_ROUNDS = 3  # from here on rounds are the units that are compared, not samples
_ALIKE = 0.25  # correlation of classes' errors in a round, as long as few rounds show it
_SURE = 0.001  # one-sided probability at which two estimates of one error are held together
# Of two labels that did not take turns, assumed: what no spread within one of them can show.
LAUNCH_NOISE = 0.02  # between launches, where a label has fewer than `ENOUGH_ROUNDS`
SESSION_NOISE = 0.01  # between sessions (clocks, heat, neighbours), where it has enough
# A short call lasts as long as the host takes to launch it, which stays high or low for minutes; a
# longer one hides that. Standard deviation between launches: (this / time)^2, at most 20 %; that is
# 3 % at 20 us and 17 % at 8 us (measured there: 16 %, the median of the classes up to 64 KiB of 30
# launches on 2 x H200).
_HOST_NOISE_US = 3.3
_HOST_NOISE_MOST = 0.2


def t_tail(t: float, freedom: float) -> float:
    """Probability that a value of Student's distribution exceeds `t`.

    freedom  degrees of freedom, at least 1; from `_NORMAL_FROM` on the distribution is the normal
    source   the regularised incomplete beta function I_x(f/2, 1/2) at x = f / (f + t^2):
             Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.1
    """
    f = max(freedom, 1.0)
    if f >= _NORMAL_FROM:
        return math.erfc(t / math.sqrt(2)) / 2
    total = f + t * t
    both = _incomplete_beta(f / total, t * t / total, f / 2, 0.5)
    return both / 2 if t >= 0 else 1 - both / 2


def t_quantile(probability: float, freedom: float) -> float:
    """Value that Student's distribution exceeds with 1 - `probability`.

    source  closed forms for 1, 2 and 4 degrees of freedom: W. Shaw, Sampling Student's T
            distribution, 2006; else Newton's method from Wallace's approximation, 1959
    """
    f = max(freedom, 1.0)
    if f >= _NORMAL_FROM:
        return NormalDist().inv_cdf(probability)
    sides = 4 * probability * (1 - probability)
    match f:
        case 1.0:
            return math.tan(math.pi * (probability - 0.5))
        case 2.0:
            return (2 * probability - 1) * math.sqrt(2 / sides)
        case 4.0:
            root = math.cos(math.acos(math.sqrt(sides)) / 3) / math.sqrt(sides)
            return math.copysign(2 * math.sqrt(max(root - 1, 0.0)), probability - 0.5)
    beyond = min(probability, 1 - probability)
    z = -NormalDist().inv_cdf(beyond) * (8 * f + 3) / (8 * f + 1)
    t = math.sqrt(f * math.expm1(z * z / f))
    scale = math.lgamma((f + 1) / 2) - math.lgamma(f / 2) - math.log(f * math.pi) / 2
    for _ in range(_NEWTON_STEPS if t else 0):
        tail = t_tail(t, f)
        density = math.exp(scale - (f + 1) / 2 * math.log1p(t * t / f))
        # The logarithm of the tail is nearly a line over that of t, where t is large.
        step = math.log(tail / beyond) * tail / (density * max(t, 1.0))
        t = t * math.exp(step) if t > 1 else t + step
        if abs(step) < _TERM_OF_ROOT * min(t, 1.0):
            break
    return math.copysign(t, probability - 0.5)


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b); `rest` is 1 - x, which may be tiny.

    source  its continued fraction: Abramowitz and Stegun, 26.5.8; evaluated by Lentz's method
    """
    if min(x, rest) <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, that of the other side
        return 1 - _incomplete_beta(rest, x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        + a * math.log(x) + b * math.log(rest)
    ) / a  # fmt: skip
    above, below, result = 1.0, 1 / (1 - (a + b) * x / (a + 1)), 1 / (1 - (a + b) * x / (a + 1))
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            below = 1 / (1 + term * below)
            above = 1 + term / above
            result *= above * below
        if abs(above * below - 1) < _TERM:
            break
    return front * result


class Samples(msgspec.Struct, frozen=True):
    """Times of one class with one label, by the round (launch) that they were taken in.

    Two labels have a round in common only where one session measured them in turns.
    """

    rounds: Mapping[Hashable, tuple[float, ...]]  # us

    @property
    def all(self) -> list[float]:
        """Samples of every round."""
        return [t for samples in self.rounds.values() for t in samples]

    @property
    def time_us(self) -> float:
        """The time reported for the class: the median over its rounds of their medians."""
        return median(median(samples) for samples in self.rounds.values())

    @property
    def time_ns(self) -> float:
        """`time_us` as answers have it."""
        return 1000 * self.time_us


class Effect(msgspec.Struct, frozen=True):
    """ln(time of the second / time of the first) of one class."""

    log_ratio: float
    error: float | None  # standard error; None: one sample each, the noise is unknown
    freedom: float  # degrees of freedom behind the error
    paired: bool  # from rounds that both labels have, measured in turns
    few: bool = False  # fewer than `ENOUGH_ROUNDS` launches of a label: how they differ is assumed
    shared: float = 0.0  # part of the error that all classes of the two labels have in common
    by_round: Mapping[Hashable, float] = msgspec.field(
        default_factory=dict
    )  # log ratios, where paired

    @property
    def speed_up(self) -> float:
        """Time of the first / time of the second."""
        return math.exp(-self.log_ratio)

    def half_width(self, confidence: float = 0.95) -> float | None:
        """Half the confidence interval of `log_ratio`; None when the noise is not known."""
        if self.error is None:
            return None
        return t_quantile(0.5 + confidence / 2, self.freedom) * self.error

    def p_slower(self) -> float:
        """Probability of an effect as large or larger if nothing had changed; 1 when unknown."""
        if self.error is None:
            return 1.0
        if self.error == 0:
            return 0.0 if self.log_ratio > 0 else 1.0
        return t_tail(self.log_ratio / self.error, self.freedom)

    def p_faster(self) -> float:
        """The same in the other direction."""
        return replace(self, log_ratio=-self.log_ratio).p_slower()


def effects(pairs: Sequence[tuple[Samples, Samples]], *, in_graphs: bool = False) -> list[Effect]:
    """Effect of each class, from its samples with the first and with the second label.

    in_graphs  the calls are launched by graphs: the host's noise does not reach them

    Where both have three rounds or more in common, the rounds are the units and are compared pair
    by pair, which takes slow drift out. Else the two are compared as groups, of rounds where each
    has three or more and of samples where not, with noise between launches or sessions added.
    The classes' variances are moderated towards their median; those of short calls towards what the
    host's noise makes of so many rounds, where that is more: few rounds may agree by chance.

    source  moderation: G. Smyth, Linear models and empirical Bayes methods, 2004, doi
            10.2202/1544-6115.1027, with a fixed prior weight
    """
    raw = [_effect(first, second) for first, second in pairs]
    known = [e.error**2 for e in raw if e.error is not None and e.freedom >= 1]
    common = median(known) if len(known) >= _POOL_FROM else 0.0
    noise = _no_noise if in_graphs else _host_noise
    return [
        _with_assumed(_with_prior(e, common, _paired_host_noise(e, noise, *pair)), noise, *pair)
        for e, pair in zip(raw, pairs, strict=True)
    ]


def _paired_host_noise(
    effect: Effect, host_noise: Callable[[Samples], float], first: Samples, second: Samples
) -> float:
    """Variance that the host's noise makes of a paired effect; others have it assumed."""
    if not effect.paired:
        return 0.0
    each = host_noise(first) + host_noise(second)
    return _MEDIAN_ERROR**2 * each / len(effect.by_round)


def _no_noise(_samples: Samples) -> float:
    return 0.0


def _host_noise(samples: Samples) -> float:
    """Variance of a launch by what the host takes for each call."""
    return min((_HOST_NOISE_US / samples.time_us) ** 2, _HOST_NOISE_MOST) ** 2


def _with_prior(effect: Effect, common: float, host: float) -> Effect:
    """The effect with its variance moderated; `common` is 0 where too few classes show one."""
    if effect.error is None or (not common and host <= effect.error**2):
        return effect
    return _moderated(effect, max(common, host))


def _with_assumed(
    effect: Effect, host_noise: Callable[[Samples], float], first: Samples, second: Samples
) -> Effect:
    """An effect of labels that did not take turns, with the noise between them added."""
    if effect.paired or effect.error is None:
        return effect
    few = min(len(first.rounds), len(second.rounds)) < ENOUGH_ROUNDS
    noise = sum(_between(samples, host_noise) for samples in (first, second))
    return replace(with_noise(effect, noise), few=few)


def with_noise(effect: Effect, variance: float) -> Effect:
    """An effect with noise added that is known or assumed, and shared by all classes."""
    if effect.error is None:
        return effect
    total, freedom = _sum_of_variances([(effect.error**2, effect.freedom), (variance, math.inf)])
    shared = math.hypot(effect.shared, math.sqrt(variance))
    return replace(effect, error=math.sqrt(total), freedom=freedom, shared=shared)


def _moderated(effect: Effect, prior: float) -> Effect:
    assert effect.error is not None  # the caller leaves those out
    freedom = effect.freedom + _PRIOR_FREEDOM
    variance = (effect.freedom * effect.error**2 + _PRIOR_FREEDOM * prior) / freedom
    return replace(effect, error=math.sqrt(variance), freedom=freedom)


def _effect(first: Samples, second: Samples) -> Effect:
    """The effect with the error that the samples themselves show."""
    common = [r for r in first.rounds if r in second.rounds]
    if len(common) >= ENOUGH_ROUNDS:
        by_round = {r: math.log(median(second.rounds[r]) / median(first.rounds[r])) for r in common}
        differences = list(by_round.values())
        return Effect(
            median(differences),
            _error(differences),
            len(common) - 1,
            paired=True,
            by_round=by_round,
        )
    return unpaired_effect(_units(first), _units(second))


def unpaired_effect(first: Sequence[float], second: Sequence[float]) -> Effect:
    """Effect of two series of independent times, with the error that they show themselves."""
    logs = [[math.log(t) for t in times] for times in (first, second)]
    ratio = median(logs[1]) - median(logs[0])
    if min(len(log) for log in logs) < 2:
        return Effect(ratio, None, 0, paired=False)
    within = [((_MEDIAN_ERROR * sigma(log)) ** 2 / len(log), len(log) - 1) for log in logs]
    variance, freedom = _sum_of_variances(within)
    return Effect(ratio, math.sqrt(variance), freedom, paired=False)


def _error(values: Sequence[float]) -> float:
    """Standard error of the values' median."""
    return _MEDIAN_ERROR * sigma(values) / math.sqrt(len(values))


def _between(samples: Samples, host_noise: Callable[[Samples], float]) -> float:
    """Variance between the label's launches or sessions and others of the same thing."""
    rounds = len(samples.rounds)
    of_all = SESSION_NOISE**2 if rounds >= ENOUGH_ROUNDS else LAUNCH_NOISE**2 / rounds
    # More launches of one session do not lessen what the host does to all of them.
    return of_all + host_noise(samples)


def _units(samples: Samples) -> list[float]:
    """Times that are independent: medians of the rounds, or all samples of a few rounds."""
    if len(samples.rounds) >= ENOUGH_ROUNDS:
        return [median(times) for times in samples.rounds.values()]
    return samples.all


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median."""
    middle = median(values)
    return median(abs(v - middle) for v in values)


def _deviation(values: Sequence[float]) -> float:
    # statistics.stdev is exact, and a hundred times as slow.
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def mean_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Mean of two values or more, and half its interval by Student's distribution."""
    n = len(values)
    half = t_quantile(0.5 + confidence / 2, n - 1) * _deviation(values) / math.sqrt(n)
    return fmean(values), half


def resampled_medians(
    series: Sequence[Sequence[float]], rng: Generator
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """Bootstrap: medians of `RESAMPLES` resamples of each series.

    series   each of one value or more
    returns  blocks: the numbers of series, and their medians, (series, RESAMPLES)

    The median of a resample of k values is the order statistic at a Beta((k+1)/2, (k+1)/2)
    quantile: exact for odd k, so one draw for each series replaces k. Draws come from a pool by k,
    which is ten times as fast for thousands of series.
    """
    import numpy as np  # noqa: PLC0415 - loading it takes longer than most commands do

    counts = np.array([len(values) for values in series])
    for k in np.unique(counts):
        shape = (k + 1) / 2
        places = np.minimum((rng.beta(shape, shape, _POOL) * k).astype(int), k - 1)
        alike = np.flatnonzero(counts == k)
        for start in range(0, len(alike), _BLOCK):
            rows = alike[start : start + _BLOCK]
            ordered = np.sort(np.array([series[row] for row in rows], dtype=np.float64), axis=1)
            index = places[rng.integers(0, _POOL, (len(rows), RESAMPLES))]
            yield rows, np.take_along_axis(ordered, index, axis=1)


def sigma(values: Sequence[float]) -> float:
    """Standard deviation, from the median absolute deviation where there are enough values."""
    if len(values) >= _ROBUST_FROM:
        return MAD_TO_SIGMA * mad(values)
    return _deviation(values)


def discoveries(p_values: Sequence[float], rate: float) -> list[bool]:
    """Which hypotheses to accept so that at most `rate` of the accepted are expected to be wrong.

    source  Y. Benjamini, Y. Hochberg, Controlling the false discovery rate, 1995
    """
    ordered = sorted(range(len(p_values)), key=p_values.__getitem__)
    accepted = 0
    for place, k in enumerate(ordered, start=1):
        if p_values[k] <= rate * place / len(p_values):
            accepted = place
    chosen = set(ordered[:accepted])
    return [k in chosen for k in range(len(p_values))]


def weighted_total(parts: Sequence[Effect], weights: Sequence[float]) -> Effect:
    """Effect of the whole: the mean of the parts, by their weights.

    Its error is not known as soon as that of one part with a weight is not.
    """
    weight_sum = sum(weights)
    shares = [w / weight_sum for w in weights]
    counted = [(s, e) for s, e in zip(shares, parts, strict=True) if s]
    ratio = sum(s * e.log_ratio for s, e in counted)
    terms = [
        (s**2 * max(e.error**2 - e.shared**2, 0), e.freedom)
        for s, e in counted
        if e.error is not None
    ]
    if len(terms) < len(counted):
        return Effect(ratio, None, 0, paired=False)
    shared = sum(s * e.shared for s, e in counted)  # does not average out
    variance, freedom = _sum_of_variances([*terms, (shared**2, math.inf)])
    paired = all(e.paired for e in parts)
    total = Effect(ratio, math.sqrt(variance), freedom, paired=paired, shared=shared)
    return _together(total, counted)


def _together(total: Effect, counted: Sequence[tuple[float, Effect]]) -> Effect:
    """The total with the error that its rounds show, where that is larger.

    A launch is slow for many classes at once, so their errors of one round do not average out.
    As with the classes, few rounds are moderated, here towards classes that are alike in part.
    """
    rounds = set.intersection(*(set(e.by_round) for _, e in counted))
    if len(rounds) < ENOUGH_ROUNDS or total.error is None:
        return total
    seen = _error([sum(s * e.by_round[r] for s, e in counted) for r in sorted(rounds, key=repr)])
    at_once = sum(s * (e.error or 0.0) for s, e in counted)  # if all classes moved alike
    prior = (1 - _ALIKE) * total.error**2 + _ALIKE * at_once**2
    both = _moderated(replace(total, error=seen, freedom=len(rounds) - 1), prior)
    return max(total, both, key=lambda e: e.half_width(1 - 2 * _SURE) or 0.0)


def _sum_of_variances(terms: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Sum of (variance, degrees of freedom), and the degrees of freedom of that sum.

    source  F. Satterthwaite, An approximate distribution of estimates of variance components, 1946
    """
    variance = sum(v for v, _ in terms)
    spread = sum(v**2 / max(f, 1) for v, f in terms)
    return variance, variance**2 / spread if spread else max(f for _, f in terms)
