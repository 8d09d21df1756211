"""What pairs of ranks reach by Send and Recv."""
