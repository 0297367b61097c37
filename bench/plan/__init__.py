"""The capacity planner: from measured figures, a failure profile and a price to the decision.

Pure: numbers in, numbers out. `config` holds what a user can state, `results` what was measured, `inputs` joins both
into labelled inputs, `setup` turns them into a job that saves and fails, `formulas` and `simulate` say what it
loses, and `answer` puts the decision together. Nothing here imports torch, pandas, hydra or scipy.
"""
