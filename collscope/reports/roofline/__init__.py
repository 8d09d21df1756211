"""What a system allows: its bounds and roofs."""
