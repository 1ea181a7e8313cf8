"""Ways of exchanging ghost atoms, and the forces on them."""
