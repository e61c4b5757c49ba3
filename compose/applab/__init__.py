"""The lab on real applications: `python -m compose.applab --help`."""
