# pyinfra runs this file before it loads the inventory. What it changes, and why, is in
# runbooks/engine/adapter/command_line.py; the reasons in short: the folder `inventory/` can be
# the inventory (`pyinfra inventory runbooks/extract.py`), a misspelt inventory or --limit is
# an error instead of an empty run that succeeds, and exit codes are the engine's.
#
# Options of pyinfra that hold for every host (sudo, a connect timeout) belong in
# inventory/group_data/all.py: `runbook`, the other front door, does not read this file.

from runbooks.engine.adapter.command_line import install

install()
