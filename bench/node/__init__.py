"""The node runner: one process per node that plays the machine, outside the training path and every emulated fault.

__main__     one node: takes orders, runs launches, ends them completely
coordinate   node 0 only: which launch is next, what it is told, when it is stopped
board        the messages between them, on one small TCP store
clocks       how far this node's clock is from node 0's
ship         events and logs, from node-local files to the result folder
pilot        what the first launch shows: intervals, durations, timeouts
"""
