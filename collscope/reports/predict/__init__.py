"""What a step of a traced run would take with other times of its collectives."""
