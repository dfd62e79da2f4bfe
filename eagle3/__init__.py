"""EAGLE-3 drafters: data, hidden states, estimates.

What runs on the GPU host. It stands alone: nothing here but `eagle3.runbook`
(which registers facts and estimators) knows the runbook engine.
"""

__version__ = "0.1.0"
