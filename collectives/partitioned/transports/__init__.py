"""One file per way of moving the groups of a partitioned send."""
