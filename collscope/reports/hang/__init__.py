"""The verdict of a hang in words."""
