"""The parsers, one per dialect; `collscope.parsers.registry` holds their readers."""
