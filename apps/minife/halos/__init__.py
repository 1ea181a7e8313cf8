"""Ways of bringing ghosts up to date that MiniFE has besides those of all mini-applications."""
