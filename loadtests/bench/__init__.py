"""What each way of using Plimsoll costs a request: peak rate, CPU and latency, in pairs of adjacent runs."""
