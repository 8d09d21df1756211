"""Labels or traced runs side by side."""
