"""Broadcasts that the root starts alone: linear, and relayed by a thread on every rank."""
