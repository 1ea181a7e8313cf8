"""Ways of bringing the ghosts of a vector up to date."""
