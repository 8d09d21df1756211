"""How much of the collectives' time is exposed, and how much is waiting for a late rank."""
