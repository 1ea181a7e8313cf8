"""How ``method="auto"`` decides: measurements, kept in a file, or what usually wins."""
