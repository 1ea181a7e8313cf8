"""Matrix files: Matrix Market, Harwell-Boeing, npz, HDF5; read by all ranks together."""
