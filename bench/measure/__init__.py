"""From raw events to figures: pure functions on numpy and the standard library, knowing nothing but bench.schema.

events -> saves -> ledger -> shares, statistics -> verdicts, validity -> summary. Nothing here measures; it reads what
was measured, so a result can be accounted again at any time and on any machine.
"""
