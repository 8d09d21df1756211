"""Why a step takes as long as it does: evidence from whole steps, and what each cause costs."""
