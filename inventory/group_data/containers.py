"""LXC containers of kpro6: whoever changes the machine locks them with it."""

guest_of = "kpro6"
