"""The report: one HTML file made of the JSON files that other commands wrote."""
