"""Files of distributed arrays."""
