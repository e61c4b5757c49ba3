"""Reads the records of a lab run; writes summary.json, report.html and a table."""
