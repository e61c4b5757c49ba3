-- Plimsoll's settings for HAProxy with placement; docs/haproxy-lua.md has every key.
require("plimsoll").start({
  cluster = "stocks",
  backend = "queries",
  policy = "fc_hash",
  redis = { addresses = { "127.0.0.1:6379" } },
  cost = { default = 80, max = 10000 },
  placement = { backend = "transactions" },
})
