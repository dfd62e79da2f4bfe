"""Carries a plan's steps out: read, decide, act, verify, on every host."""
