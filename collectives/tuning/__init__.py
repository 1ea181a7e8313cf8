"""How ``method="auto"`` decides: measurements, kept in a file, or the model."""
