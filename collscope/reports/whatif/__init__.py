"""What other bucket sizes and another wrapper would give."""
