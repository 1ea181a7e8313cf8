"""The experiments of the papers: exchanges, patterns of matrices, applications, and all at once."""
