"""How people write the settings of a policy of gradient buckets."""

from __future__ import annotations

from collscope.units import format_size
from collscope.whatif.policies import Policy


def setting_word(policy: str) -> str:
    """What the settings of a policy are."""
    return "number of buckets" if policy == Policy.FIXED_COUNT.value else "threshold"


def setting_text(policy: str, setting: int) -> str:
    """A setting as people write it.

    >>> setting_text("post_gt", 1048576), setting_text("pre", 10240000)
    ('1 MiB', '10000 KiB')
    """
    if policy == Policy.FIXED_COUNT.value:
        return str(setting)
    in_kib = setting % 1024 == 0 and setting % (1 << 20) != 0
    return f"{setting // 1024} KiB" if in_kib else format_size(setting)
