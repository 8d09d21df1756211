"""Why a step of one traced run takes longer than one of another."""
