std = "lua53"
max_line_length = 120
files["lua/plimsoll"] = { read_globals = { "core", "Map" } }
-- The function libraries are checked whole, by `make lint`.
exclude_files = { "lua/redis" }
files["lua/spec"] = { std = "+busted" }
files["haproxy"] = { read_globals = { "core" } }
files["tests"] = { read_globals = { "core" } }
