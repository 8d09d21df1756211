"""A copy of logs, traces, recordings and stores that can be shared: names replaced by others."""
