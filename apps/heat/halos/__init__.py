"""Ways of bringing the ghost layers of a block up to date."""
