"""What every host has, unless its group or hosts.py says otherwise.

Settings of pyinfra that would be `_sudo=True` at an operation go here too (`_sudo = True`).
"""

# What a host is; runbooks and deploys choose by it.
kind = "machine"
