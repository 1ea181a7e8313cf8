"""What papers claim, and whether it holds here."""
