-- report(node, instance, bound, bound_jobs, mean_cost, jobs, load, lease_ms, slots, dead_band, settle_ms, address,
--        capacity)
--   jobs: active requests. load: delay over the SLA's target, or the host's. Both for the schedulers.
--   bound 0: the node is drained and owns nothing. lease_ms 0: it leaves at once.
--   settle_ms: how long a ring made from nothing waits for the other nodes.
--   address: "host:port" that proxies connect to; may be left out.
--   capacity: what ring sizes go by, -1 where it is not known; without it, as before version 8, the bound.
-- Returns { version, proxy, observation, proxy, observation, … } of this node.
local function report(keys, args)
  local name, instance = args[1], args[2]
  if #keys ~= 5 then return fail("report needs 5 keys") end
  if not is_name(name) then return fail("node name must be 1..128 of A-Za-z0-9._:/-") end
  if not is_name(instance) then return fail("instance must be 1..128 of A-Za-z0-9._:/-") end
  local measured = {}
  for i, field in ipairs({ "bound", "bound_jobs", "mean_cost", "jobs", "load" }) do
    local value = number(args[i + 2], 0, MAX_NUMBER)
    if not value then return fail(field .. " must be a number within 0..1e15") end
    measured[i] = exact(value)
  end
  local lease, slots = lease_of(args[8]), whole(args[9], 1, MAX_SLOTS)
  local dead_band, settle = number(args[10], 0, 1), whole(args[11], 0, MAX_LEASE_MS)
  if not lease then return fail(BAD_LEASE) end
  if not slots then return fail("slots must be a whole number within 1..1048576") end
  if not dead_band then return fail("dead_band must be within 0..1") end
  if not settle then return fail("settle_ms must be a whole number within 0..3600000") end
  local capacity = number(args[13] or args[3], 0, MAX_NUMBER)
  if not capacity and number(args[13], -1, -1) ~= -1 then
    return fail("capacity must be -1, or a number within 0..1e15")
  end
  local before = stored(parse_node, name, redis.call("HGET", keys[1], name))
  local now, since, round = tell_time(keys, before and before.instance == instance and before)
  local live, count = live_nodes(keys, now, since)
  local held = live[name]
  if held and held.instance ~= instance then
    return redis.error_reply("CONFLICT plimsoll: node " .. name .. " is reported by another agent, " .. held.instance)
  end
  if not held and count >= MAX_NODES then
    return fail("the cluster has " .. MAX_NODES .. " nodes, which is the most")
  end
  if lease == 0 then
    forget(keys, keys[1], held and { name } or {})
    live[name] = nil
  else
    local times = exact(now + lease) .. " " .. exact(lease) .. " " .. exact(round)
    local record = table.concat(measured, " ") .. " " .. times .. " " .. instance
    record = record .. " " .. (address_of(args[12]) or "-") .. " " .. (capacity and exact(capacity) or "-")
    redis.call("HSET", keys[1], name, record)
    live[name] = parse_node(record)
  end
  local reply = { rebalance(keys[2], live, count == 0 and name, slots, dead_band, now, settle) }
  local proxies = redis.call("HKEYS", keys[3])
  if #proxies > MAX_PROXIES then
    live_proxies(keys, now, since)
    proxies = redis.call("HKEYS", keys[3])
  end
  local fields = {}
  for i, proxy in ipairs(proxies) do
    fields[i] = name .. " " .. proxy
  end
  for i, seen in ipairs(get_all(keys[5], fields)) do
    if seen and #seen <= MAX_OBSERVATION_BYTES then
      reply[#reply + 1] = proxies[i]
      reply[#reply + 1] = seen
    end
  end
  return reply
end

-- Of "demand" or "demand/held": both, and the first as text; nil where it cannot be read.
local function parse_demand(text)
  local slash = text:find("/", 1, true)
  local told, held = text, 0
  if slash then
    told, held = text:sub(1, slash - 1), number(text:sub(slash + 1), 0, MAX_NUMBER)
  end
  local demand = number(told, 0, MAX_NUMBER)
  if demand and held then
    return demand, held, told
  end
end

-- observe(proxy, instance, lease_ms, node, demand, observation, node, demand, observation, …)
--   demand: cost this proxy wanted to send the node in the last period, refused work included; beyond the
--     node's bound no more than four times the others' counts. Or demand/held, with the cost that it may have
--     in flight there until it hears the answer: what it has, or the share that it knows where that is larger.
--   lease_ms 0: the proxy leaves and gives its shares back.
-- Returns { version, live proxies, node, granted, bound_jobs, mean_cost, jobs, load, … } of the live
-- nodes asked for; granted is the cost this proxy may have in flight there.
local function observe(keys, args)
  local proxy, instance, lease = args[1], args[2], lease_of(args[3])
  if #keys ~= 5 then return fail("observe needs 5 keys") end
  if not is_name(proxy) then return fail("proxy name must be 1..128 of A-Za-z0-9._:/-") end
  if not is_name(instance) then return fail("instance must be 1..128 of A-Za-z0-9._:/-") end
  if not lease then return fail(BAD_LEASE) end
  if (#args - 3) % 3 ~= 0 or #args > 3 + 3 * MAX_NODES then
    return fail("observe takes node, demand and observation for up to " .. MAX_NODES .. " nodes")
  end
  for i = 4, #args, 3 do
    if not is_name(args[i]) then return fail("node name must be 1..128 of A-Za-z0-9._:/-") end
    if not parse_demand(args[i + 1]) then return fail("demand and held must be numbers within 0..1e15") end
    if #args[i + 2] > MAX_OBSERVATION_BYTES then return fail("an observation has at most 2048 bytes") end
  end
  local before = stored(parse_proxy, proxy, redis.call("HGET", keys[3], proxy))
  local now, since, round = tell_time(keys, before and before.instance == instance and before)
  local proxies, count = live_proxies(keys, now, since)
  local held = proxies[proxy]
  if held and held.instance ~= instance then
    -- A restarted proxy: what it held died with it.
    forget(keys, keys[3], { proxy })
    held, proxies[proxy], count = nil, nil, count - 1
  end
  if not held and count >= MAX_PROXIES then
    return fail("the cluster has " .. MAX_PROXIES .. " proxies, which is the most")
  end
  local ring = read_ring(keys[2], false)
  local version = ring and ring.version or 0
  if lease == 0 then
    forget(keys, keys[3], held and { proxy } or {})
    return { version, held and count - 1 or count }
  end
  local times = exact(now + lease) .. " " .. exact(lease) .. " " .. exact(round)
  redis.call("HSET", keys[3], proxy, times .. " " .. instance)
  if not held then
    proxies[proxy], count = { instance = instance }, count + 1
  end
  local nodes = live_nodes(keys, now, since)
  local asked, seen = {}, {}
  for i = 4, #args, 3 do
    local node = nodes[args[i]]
    if node then
      local demand, held_there, told = parse_demand(args[i + 1])
      -- Written as it was told, but where that is not one short word.
      told = (#told > 32 or told:find("%s")) and exact(demand) or told
      asked[#asked + 1] = { name = args[i], told = told, demand = demand, held = held_there, node = node }
      seen[#seen + 1] = args[i] .. " " .. proxy
      seen[#seen + 1] = args[i + 2]
    end
  end
  set_all(keys[5], seen)
  grant(keys, asked, proxy, proxies, count, now)
  local reply = { version, count }
  for _, entry in ipairs(asked) do
    local last = #reply
    reply[last + 1], reply[last + 2] = entry.name, entry.granted
    reply[last + 3], reply[last + 4], reply[last + 5], reply[last + 6] = unpack(entry.node.words)
  end
  return reply
end

-- restore(version, slots, names, owners, settle_ms): the last table a follower knew, for a Redis that
-- lost its own, so that keys stay where they were. Taken only where it is newer. Returns the version.
local function restore(keys, args)
  if #keys ~= 5 then return fail("restore needs 5 keys") end
  local version, slots = whole(args[1], 1, MAX_NUMBER), whole(args[2], 1, MAX_SLOTS)
  local names, owners = split((args[3] or ""):sub(1, MAX_NODES * (MAX_NAME + 1)), "\n"), args[4] or ""
  if not version then return fail("version must be a whole number within 1..1e15") end
  if not slots or #owners ~= slots then return fail("owners must be one byte a slot, at most 1048576") end
  if #names > MAX_NODES then return fail("a ring has at most " .. MAX_NODES .. " nodes") end
  for _, name in ipairs(names) do
    if name ~= "" and not is_name(name) then return fail("node name must be 1..128 of A-Za-z0-9._:/-") end
  end
  local name = doubled(names)
  if name then return fail("node " .. name .. " is there twice") end
  local settle = whole(args[5], 0, MAX_LEASE_MS)
  if not settle then return fail("settle_ms must be a whole number within 0..3600000") end
  local held = read_ring(keys[2], true)
  if held and held.version >= version then
    return held.version
  end
  local sizes, sum = {}, 0
  for i = 1, #names do
    sizes[i] = 0
  end
  for slot = 1, slots do
    local owner = owners:byte(slot)
    if owner ~= NOBODY then
      if not sizes[owner + 1] or names[owner + 1] == "" then
        return fail("slot " .. (slot - 1) .. " has an owner without a name")
      end
      sizes[owner + 1] = sizes[owner + 1] + 1
      sum = sum + 1
    end
  end
  if sum ~= 0 and sum ~= slots then return fail("every slot or none must have an owner") end
  store_ring(keys[2], { version = version, slots = slots, names = names, sizes = sizes, owners = owners })
  redis.call("HSET", keys[2], "settle_until", exact(now_ms() + settle))
  redis.call("PUBLISH", keys[2], exact(version) .. " " .. exact(version) .. " - full")
  return version
end

-- ring(): { version, slots, names, owners }, empty where there is none.
local function ring(keys)
  local found, owners = read_ring(keys[2], true)
  if not found then
    return {}
  end
  return { found.version, found.slots, table.concat(found.names, "\n"), owners }
end

-- nodes("capacity"): { version, node, address, bound, bound_jobs, mean_cost, jobs, load, capacity, … } of all live
-- nodes; address is empty and capacity -1 where they are not known, bound 0 where the node is out. Without the
-- argument, as before version 8, there is no capacity.
local function nodes(keys, args)
  if #keys ~= 5 then return fail("nodes needs 5 keys") end
  if args[1] and args[1] ~= "capacity" then return fail("nodes takes the word capacity, or nothing") end
  local found = read_ring(keys[2], false)
  local reply = { found and found.version or 0 }
  local now, since, _, seen = read_time(keys)
  for name, node in pairs((look_at(keys[1], parse_node, MAX_NODES, now, since, seen))) do
    local last = #reply
    reply[last + 1], reply[last + 2], reply[last + 3] = name, node.address or "", node.told_bound
    reply[last + 4], reply[last + 5], reply[last + 6], reply[last + 7] = unpack(node.words)
    if args[1] then
      reply[last + 8] = node.capacity and exact(node.capacity) or "-1"
    end
  end
  return reply
end

-- Says which key is somebody else's, before anything is written.
local function on_hashes(callback)
  return function(keys, args)
    for _, key in ipairs(keys) do
      local kind = redis.call("TYPE", key).ok
      if kind ~= "hash" and kind ~= "none" then
        return fail("key " .. key .. " holds a " .. kind .. " and not a hash: delete it, or rename the cluster")
      end
    end
    return callback(keys, args)
  end
end

redis.register_function("plimsoll_report", on_hashes(report))
redis.register_function("plimsoll_observe", on_hashes(observe))
redis.register_function("plimsoll_restore", on_hashes(restore))
redis.register_function({ function_name = "plimsoll_ring", callback = on_hashes(ring), flags = { "no-writes" } })
redis.register_function({ function_name = "plimsoll_nodes", callback = on_hashes(nodes), flags = { "no-writes" } })
redis.register_function({
  function_name = "plimsoll_version",
  callback = function()
    return VERSION
  end,
  flags = { "no-writes", "allow-stale" },
})
