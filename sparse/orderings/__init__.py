"""Who owns which rows: orderings by METIS and Cuthill-McKee, and the way there and back."""
