"""Programs over language models: functions that append text, generate, select, fork and join.

Needs no torch and no backend in this process; imports what it needs at first use.
"""
