"""Mini-applications: HPCCG, MiniFE and miniMD, their ghosts brought in several ways."""
