"""Proxmox VE hosts."""

kind = "proxmox"
