"""The node runner: one process per node that plays the machine, outside the training path and every emulated fault.

__main__     one node: takes orders, runs launches, ends them completely
coordinate   node 0 only: which launch is next, what it is told, when it is stopped
follow       one launch as the coordinator sees it: reports, deadlines, restarts of the whole job
launch       one launch on one node, from its folders to its clean end
crew         its processes: started, watched, started again as the recovery layer asks
gone, agent_log, meeting_points   when processes ended; when an agent noticed; ports and stores
pulse        signs of life of the runners
board        the messages between them, on one small TCP store
clocks       how far this node's clock is from node 0's
ship         events and logs, from node-local files to the result folder
pilot        what the first launch shows: intervals, durations, timeouts
"""
