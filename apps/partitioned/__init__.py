"""The benchmark of partitioned sends."""
