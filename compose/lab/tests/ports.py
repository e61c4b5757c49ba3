"""Ports that nothing listens on."""

from compose.lab import render

PORTS = render.Ports(
    20080,
    20404,
    20100,
    20099,
    [20101 + n for n in range(7)],
    [20201 + n for n in range(7)],
    [20301 + n for n in range(7)],
    20379,
)
