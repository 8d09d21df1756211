"""One package for each question: its answer in numbers, and the answer in words and figures."""
