"""For all tests: nothing is timed, so hypothesis has no deadline either."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("project", deadline=None)
settings.load_profile("project")
