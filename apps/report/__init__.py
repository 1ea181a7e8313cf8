"""One page of what the other commands measured, and of what the papers claim."""
