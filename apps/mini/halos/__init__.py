"""Ways of bringing the ghosts of a distributed vector up to date."""
