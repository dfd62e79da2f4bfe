"""Runbooks (`*.yaml`), the deploy files that run them (`*.py`), and the engine."""
