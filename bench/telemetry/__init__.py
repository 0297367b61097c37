"""What GPUs report about themselves while a launch runs: load, memory, power, energy, clocks, and why these are low.

devices   which GPUs there are, and which of them CUDA shows to ranks
sample    one look at one GPU, through NVML      watch    looks at a stated rate, written as events of the node runner
energy    what was used in a stretch of time, from the samples
"""
