"""Real applications, as nodes of the lab: what they are, how they start, and the CPU quota of each."""
