"""The engine's one way to hosts: everything that imports pyinfra or gevent is in here.

pyinfra 4 will break its API (asyncio, asyncssh); then this folder changes and nothing else.
"""
