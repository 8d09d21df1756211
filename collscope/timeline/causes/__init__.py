"""What had to happen before what: the stages from rows to the causal graph (pure)."""
