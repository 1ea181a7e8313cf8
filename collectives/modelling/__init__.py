"""What a round of every method costs: LogGP on the node and between nodes, fitted, predicted."""
