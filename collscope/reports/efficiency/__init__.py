"""How fast the collectives are against what the fabric allows, and what better ones would give."""
