"""What a replay will measure, and what it measured."""
