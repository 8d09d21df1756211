"""Questions: from a store to frozen records of numbers and codes. Words are made in reports."""
