"""Whether one label or run is slower than another."""
