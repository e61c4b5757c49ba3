"""The harness' fixtures, for the tests of all areas."""

pytest_plugins = ["tests.harness.fixtures"]
