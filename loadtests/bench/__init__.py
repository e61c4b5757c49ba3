"""Cost per request of each tier of Plimsoll: peak rate, CPU and latency, in pairs of adjacent runs."""
