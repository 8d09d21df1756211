"""collscope: what collectives cost a distributed GPU job, and what could be gained."""

__version__ = "0.1.0"
