"""The mini-app MiniFE: finite elements for the Poisson equation on a box."""
