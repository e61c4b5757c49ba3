"""The burst with long requests among the short ones."""

from compose.lab.scenarios.base import MIXES, Comparison
from compose.lab.timeline import Work


class Mix(Comparison):
    name = "mix"

    def work(self, mix: str) -> Work:
        return Work(long_share=MIXES[mix])
