"""Systems of linear and of differential equations."""
