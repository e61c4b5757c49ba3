"""The error a user is to read, as opposed to a fault of the lab."""


class LabError(Exception):
    """Something the user can act on; printed without a traceback."""
