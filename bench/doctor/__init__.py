"""The preflight: what a run needs of this machine, what is there, and what to do about the difference.

base      Check, and Case: the run that is asked for beside the machine at hand
examine   all groups of checks, and the command
ask       probes: processes that find out what only torch, NCCL or a device can say
ranks     probe: ranks meet, compare clocks and reduce      meeting   two of them, here or on two nodes
copies    probe: copies from devices to the host            mounts    what kinds of file systems there are

Every other module is a group of checks: generators that take the Case. Nothing here imports torch but the probes, which
run in processes of their own, so that a machine without torch is told so.
"""
