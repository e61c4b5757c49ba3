"""The lab under faults: real programs on hosts of their own, a nemesis, a history, and a checker of it."""
