"""What the report says about the results of each command."""
