std = "lua53"
max_line_length = 120
files["lua/plimsoll"] = { read_globals = { "core", "Map" } }
files["lua/redis"] = { std = "lua51", read_globals = { "redis" } }
files["lua/spec"] = { std = "+busted" }
files["haproxy"] = { read_globals = { "core" } }
