"""Guests that run models."""

kind = "gpu"

# Where the wheel of this project puts `eagle3` on a GPU host.
path = ["/opt/eagle3/bin"]
