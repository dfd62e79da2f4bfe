"""The words of the engine as values: diagnostics, types, facts, checks, steps, hosts.

Frozen dataclasses and pure functions; nothing here reads a file, a host or a clock.
"""
