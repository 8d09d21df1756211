"""The job of a figure or a profile, as far as their names show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

_SHORTEST = 3  # letters and digits of a word that names a job


def job_of_figure(name: str) -> str:
    """The job in a figure's name; empty where it names none.

    >>> job_of_figure("BigBird Oscar: train_runtime"), job_of_figure("median_ms")
    ('BigBird Oscar', '')
    >>> job_of_figure("images_per_second (16 nodes, 128 ranks)")
    '16 nodes, 128 ranks'
    """
    title, colon, _ = name.partition(": ")
    if colon:
        return title
    found = re.search(r"\((.+)\)$", name)
    return found[1] if found else ""


def job_of_profile(path: str, jobs: Iterable[str]) -> str | None:
    """The job of `jobs` that a profile's file is named after; None for none, or several.

    A word names a job when no other job has it; all words with a digit must be there.

    >>> job_of_profile("samples/frontier-gptj.txt", ["GPT-J Oscar", "BigBird Oscar"])
    'GPT-J Oscar'
    >>> job_of_profile("llama-3.txt", ["Llama 2", "Llama 3"])
    'Llama 3'
    """
    words = {job: _words(job) for job in jobs}
    of_jobs = Counter(word for own in words.values() for word in own)
    parts = re.findall(r"[a-z0-9]+", PurePath(path).name.casefold())
    # what one writes in one piece another writes in several: gptj, gpt-j
    joined = {"".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)}
    named = [job for job, own in words.items() if _names(own, joined, of_jobs)]
    return named[0] if len(named) == 1 else None


def _words(job: str) -> frozenset[str]:
    parts = (re.sub(r"[^a-z0-9]", "", word) for word in job.casefold().split())
    return frozenset(filter(None, parts))


def _names(words: frozenset[str], joined: set[str], of_jobs: Counter[str]) -> bool:
    numbers = {word for word in words if any(c.isdigit() for c in word)}
    own = {word for word in words if of_jobs[word] == 1}
    letters = {word for word in words - numbers if len(word) >= _SHORTEST}
    return numbers <= joined and bool(own & joined) and bool(letters & joined)


def same_job(job: str, jobs: Sequence[str], named: str | None, profiles: int) -> bool:
    """Whether a figure's job is that of a profile.

    jobs      of all figures of the run
    named     the job that the profile's file is named after, if any
    profiles  how many jobs the run's profiles may be of
    """
    if named is not None:
        return named == job
    return profiles == 1 and len(set(jobs)) == 1
