"""How much of the GPU time the collectives take."""
