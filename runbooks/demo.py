from runbooks.engine import run_runbook

run_runbook(__file__)
