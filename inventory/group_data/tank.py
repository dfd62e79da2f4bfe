"""Hosts that see kpro6's pool `tank`, under the same paths.

kpro6 owns the datasets; the container has them as bind mounts, the virtual machine as shared
folders. Proofs for a delete are read on the owner, which sees every process and mount.
"""

roots = {
    # The datasets of the pipeline. `mounted`: without the mount nothing below is known.
    # `reserve` stays free, or the pool gets slow and its guests cannot write logs.
    "data": {
        "path": "/data/eagle3",
        "owner": "kpro6",
        "filesystem": "tank/data",
        "mounted": True,
        "reserve": "200 GiB",
    },
    # Target models, one folder each: `model:kimi-k2.5`.
    "model": {
        "path": "/data/models",
        "owner": "kpro6",
        "filesystem": "tank/models",
        "mounted": True,
        "reserve": "50 GiB",
    },
}
