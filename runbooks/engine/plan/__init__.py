"""What a run would do and why, from facts read now; no host is touched."""
