"""The fleet.

No address stands here: `Host kpro6` in ~/.ssh/config says where a host is, as which user and
with which key. Another address for one host: ("llm-two", {"ssh_hostname": "10.0.0.12"}), and
any other connector setting of pyinfra the same way (ssh_user, ssh_port, ssh_key). What hosts of
a group have in common is in group_data/, one file for each group.
"""

# The Proxmox VE host; it owns the disks.
proxmox = ["kpro6"]

# The LXC container and the KVM virtual machine on it that run the models.
containers = ["llm-two"]
vms = ["llm-one"]
gpu_nodes = ["llm-two", "llm-one"]

# Hosts that see the pool of kpro6; its roots are in group_data/tank.py.
tank = ["kpro6", "llm-two", "llm-one"]
