"""MSCCL algorithms against a run: which classes each would serve, and what its steps cost."""
