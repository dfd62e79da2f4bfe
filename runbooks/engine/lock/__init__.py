"""Locks: one operator at a time on a host, and no act by one whose lock was taken over."""
