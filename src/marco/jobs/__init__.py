"""Many tasks side by side, on the cores of this machine or on a Ray cluster.

events.py        what the caller hears of its tasks
processes.py     a process for each task, here
on_ray.py        a Ray task for each, wherever the cluster has room
"""
