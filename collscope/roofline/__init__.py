"""What a fabric allows: systems as data, bounds from their wiring, roofs in size, and fits."""
