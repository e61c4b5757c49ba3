#!lua name=plimsoll

-- Plimsoll's shared state: nodes with leases, the ring, the proxies' shares of each bound.
--
-- Redis 7.0 and later, Valkey. Every write is one function call, so it is atomic. Time is the
-- server's own: the clocks of agents and proxies do not matter. Nothing that is read back is
-- trusted; a record that cannot be parsed is dropped, as is one whose lease has run out.
--
-- Keys, all with the prefix `plimsoll:{cluster}:` and so in one hash slot of a Redis Cluster:
--   KEYS[1] nodes         hash  node -> "bound bound_jobs mean_cost jobs load lease_end_ms lease_ms round instance
--                               address capacity", with "-" where one is not known; version 7 wrote no capacity, and
--                               an address only where it is known
--   KEYS[2] ring          hash  version, slots, owners (a byte a slot, 255: nobody), check (SHA-1 of
--                               owners), names (a line a node, empty where the index is free), sizes,
--                               settle_until, seen (time of the last call), round (its number), since (its begin)
--   KEYS[3] proxies       hash  proxy -> "lease_end_ms lease_ms round instance"
--   KEYS[4] shares        hash  "node proxy" -> "held demand"
--   KEYS[5] observations  hash  "node proxy" -> what the proxy counted, as it sent it
--                               node -> those of shares for all proxies together, two doubles
--
-- Changes of the ring are published on the channel named as KEYS[2]:
--   "<from> <to> <node index=name,…> <first slot:count:owner,…>"
-- with "-" for an empty list, and "full" for the last word where reading the table is cheaper.

-- luacheck: read_globals struct

local VERSION = 8

local MAX_NODES = 255
local MAX_PROXIES = 4096
local MAX_SLOTS = 1048576
local MIN_LEASE_MS = 100
local MAX_LEASE_MS = 3600000
local MAX_OBSERVATION_BYTES = 2048
local MAX_NUMBER = 1e15
local MAX_SUM = MAX_PROXIES * MAX_NUMBER
local MAX_NAME = 128
local MAX_RECORD_BYTES = 1024
local MAX_ADDRESS = 255
local NOBODY = 255
-- Multiples of it are spread evenly between whole numbers.
local GOLDEN = 0.6180339887498949
-- For so long a share is rounded up or down: what is given up is of no use to others for a period.
local ROUNDED_MS = 16000
-- Of all demand or of the bound, whichever is more: what all proxies have evenly, so that nobody's first
-- request waits, and so that a little demand moves little.
local FLOOR_DEMAND = 0.05
-- Of a demand beyond the bound no more than this times that of all other proxies counts: or else one request of an
-- absurd cost would leave the others nothing for many periods.
local MAX_TIMES_OTHERS = 4
-- Of a sum: where so little is left without this proxy's part, rounding may be most of it.
local CANCELLED = 1e-6
-- Runs in a message; beyond, reading the table is cheaper.
local MAX_RUNS = 256

local function fail(text)
  return redis.error_reply("ERR plimsoll: " .. text)
end

local function now_ms()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function number(text, low, high)
  local value = tonumber(text)
  -- NaN is the only value that differs from itself.
  if value == nil or value ~= value or value < low or value > high then
    return nil
  end
  return value
end

local function whole(text, low, high)
  local value = number(text, low, high)
  return value and value == math.floor(value) and value or nil
end

-- A parser that remembers what it made of up to `most` texts: they are read far more often than written.
local function remembering(most, parse)
  local known, count = {}, 0
  return function(text)
    local found = known[text]
    if found == nil then
      if count == most then
        known, count = {}, 0
      end
      found = parse(text) or false
      known[text], count = found, count + 1
    end
    return found
  end
end

local is_good_name = remembering(8192, function(text)
  return text:find("^[%w._:/%-]+$") ~= nil
end)

local function is_name(text)
  return type(text) == "string" and #text <= MAX_NAME and is_good_name(text)
end

local function exact(value)
  return string.format("%.17g", value)
end

-- The values of any number of fields; false where there is none.
local function get_all(key, fields)
  if #fields > 0 and #fields <= 1000 then
    return redis.call("HMGET", key, unpack(fields))
  end
  local values = {}
  for first = 1, #fields, 1000 do
    for i, value in ipairs(redis.call("HMGET", key, unpack(fields, first, math.min(first + 999, #fields)))) do
      values[first + i - 1] = value
    end
  end
  return values
end

local function set_all(key, flat)
  for first = 1, #flat, 1000 do
    redis.call("HSET", key, unpack(flat, first, math.min(first + 999, #flat)))
  end
end

local function pairs_of(flat)
  local i = -1
  return function()
    i = i + 2
    return flat[i], flat[i + 1]
  end
end

local function drop(key, fields)
  for first = 1, #fields, 1000 do
    redis.call("HDEL", key, unpack(fields, first, math.min(first + 999, #fields)))
  end
end

-- The address proxies connect to; nil where it cannot be one.
local function address_of(text)
  return text and text ~= "-" and #text <= MAX_ADDRESS and text:match("^[!-~]+$") or nil
end

-- The address and the capacity at the end of a node's record; without a word on it its capacity is its bound.
local function end_of_node(rest, bound)
  local address, capacity = rest:match("^ (%S+) (%S+)$")
  if capacity == "-" then
    return address_of(address), nil
  end
  capacity = number(capacity or "", 0, MAX_NUMBER)
  if capacity then
    return address_of(address), capacity
  end
  return address_of(rest:match("^ (%S+)$")), bound
end

local parse_node = remembering(4096, function(text)
  local bound, bound_jobs, mean_cost, jobs, load, lease_end, lease, round, instance, rest =
    text:match("^(%S+) (%S+) (%S+) (%S+) (%S+) (%d+) (%d+) (%d+) (%S+)(.*)$")
  local node = {
    told_bound = bound, words = { bound_jobs, mean_cost, jobs, load },
    bound = number(bound, 0, MAX_NUMBER), bound_jobs = number(bound_jobs, 0, MAX_NUMBER),
    mean_cost = number(mean_cost, 0, MAX_NUMBER), jobs = number(jobs, 0, MAX_NUMBER),
    load = number(load, 0, MAX_NUMBER), lease_end = number(lease_end, 0, MAX_NUMBER),
    lease = whole(lease, MIN_LEASE_MS, MAX_LEASE_MS), round = number(round, 0, MAX_NUMBER), instance = instance,
  }
  local whole_record = node.bound and node.bound_jobs and node.mean_cost and node.jobs and node.load
  if whole_record and node.lease_end and node.lease and node.round and is_name(instance) then
    node.address, node.capacity = end_of_node(rest, node.bound)
    return node
  end
end)

-- Of "lease_end_ms lease_ms round instance".
local parse_proxy = remembering(8192, function(text)
  local lease_end, lease, round, instance = text:match("^(%d+) (%d+) (%d+) (%S+)$")
  local proxy = {
    lease_end = number(lease_end, 0, MAX_NUMBER), lease = whole(lease, MIN_LEASE_MS, MAX_LEASE_MS),
    round = number(round, 0, MAX_NUMBER), instance = instance,
  }
  if proxy.lease_end and proxy.lease and proxy.round and is_name(instance) then
    return proxy
  end
end)

local function stored(parse, name, text)
  return text and #text <= MAX_RECORD_BYTES and is_name(name) and parse(text)
end

-- Time in which nobody could call does not count: or else the first to come back would find every other lease run
-- out, and be given all slots and shares. Nor does a clock that was set, or another server's after a failover.
-- What of it was such a time nobody can tell; so time goes by rounds, which last about as long as the shortest period
-- of a caller: of each no more than a third of a lease counts towards its end. So a node that died beside a lone
-- survivor is not kept, and several small steps of the clock are no more than one.
-- @param since number when this round began
-- @param at number the last call; what came after it counts
local function lease_end_of(record, since, at)
  return record.lease_end + math.max(0, at - since - math.floor(record.lease / 3))
end

-- Moves the ends of all leases, each by what `by` says of its record.
local function shift_leases(keys, by)
  local of_nodes = { keys[1], parse_node, "^(%S+ %S+ %S+ %S+ %S+ )%d+( .+)$" }
  local of_proxies = { keys[3], parse_proxy, "^(%s?)%d+( .+)$" }
  for _, kind in ipairs({ of_nodes, of_proxies }) do
    local key, parse, pattern = unpack(kind)
    for name, text in pairs_of(redis.call("HGETALL", key)) do
      local record = stored(parse, name, text)
      local away = record and by(record) or 0
      if away ~= 0 then
        local head, tail = text:match(pattern)
        redis.call("HSET", key, name, head .. exact(math.max(0, record.lease_end + away)) .. tail)
      end
    end
  end
end

-- What time it is, when the round began, and its number.
local function read_time(keys)
  local now = now_ms()
  local fields = redis.call("HMGET", keys[2], "seen", "since", "round")
  local seen, round = whole(fields[1] or "", 1, MAX_NUMBER), whole(fields[3] or "", 0, MAX_NUMBER - 1) or 0
  local since = whole(fields[2] or "", 1, seen or 0)
  if not since then
    seen, since = now, now
  end
  return now, since, round, seen
end

-- The same, for somebody who calls: a round ends when somebody calls who has called in it, or whom nobody knows.
-- @param caller its record, or nothing
local function tell_time(keys, caller)
  local now, since, round, seen = read_time(keys)
  if now < seen then
    shift_leases(keys, function(record)
      -- One that cannot have been then stays: somebody else wrote it, or that time.
      return whole(record.lease_end, seen + 1, seen + MAX_LEASE_MS) and now - seen or 0
    end)
    since = math.max(1, since + now - seen)
  end
  if not caller or caller.round == round then
    shift_leases(keys, function(record)
      local counted = since + math.floor(record.lease / 3)
      -- One that has run out stays so. Who called in this round began its lease then.
      return record.lease_end > counted and math.max(0, now - math.max(counted, record.lease_end - record.lease)) or 0
    end)
    since, round = now, round + 1
  end
  redis.call("HSET", keys[2], "seen", exact(now), "since", exact(since), "round", exact(round))
  return now, since, round
end

-- The live ones by name, their number, and the names of what has run out or cannot be read.
local function look_at(key, parse, most, now, since, at)
  local live, count, gone = {}, 0, {}
  for name, text in pairs_of(redis.call("HGETALL", key)) do
    local found = stored(parse, name, text)
    local is_live = found and (found.lease_end > now or lease_end_of(found, since, at) > now)
    if is_live and found.lease_end <= now + MAX_LEASE_MS and count < most then
      live[name] = found
      count = count + 1
    else
      gone[#gone + 1] = name
    end
  end
  return live, count, gone
end

local function names_of(key)
  local names = {}
  for _, name in ipairs(redis.call("HKEYS", key)) do
    names[name] = true
  end
  return names
end

-- Forgets nodes or proxies, and what is kept of those that are no more.
local function forget(keys, key, gone)
  if #gone == 0 then
    return
  end
  drop(key, gone)
  local nodes, proxies = names_of(keys[1]), names_of(keys[3])
  for _, pairs_key in ipairs({ keys[4], keys[5] }) do
    local dead = {}
    for _, field in ipairs(redis.call("HKEYS", pairs_key)) do
      local node, proxy = field:match("^(%S+) (%S+)$")
      -- The sums as well, which have no proxy: they are made anew.
      if not (nodes[node] and proxies[proxy]) then
        dead[#dead + 1] = field
      end
    end
    drop(pairs_key, dead)
  end
end

-- The live nodes by name, and their number; forgets the others.
local function live_nodes(keys, now, since)
  local live, count, gone = look_at(keys[1], parse_node, MAX_NODES, now, since, now)
  forget(keys, keys[1], gone)
  return live, count
end

local function live_proxies(keys, now, since)
  local live, count, gone = look_at(keys[3], parse_proxy, MAX_PROXIES, now, since, now)
  forget(keys, keys[3], gone)
  return live, count
end

-- How long a caller may be silent: 0, or within bounds; nil where it cannot be.
local function lease_of(text)
  local lease = whole(text, 0, MAX_LEASE_MS)
  return lease and (lease == 0 or lease >= MIN_LEASE_MS) and lease or nil
end

local BAD_LEASE = "lease_ms must be 0, or a whole number within " .. MIN_LEASE_MS .. ".." .. MAX_LEASE_MS

local function split(text, separator)
  local parts = {}
  for part in (text .. separator):gmatch("([^" .. separator .. "]*)" .. separator) do
    parts[#parts + 1] = part
  end
  return parts
end

-- The name that is there twice, if any is; empty ones do not count.
local function doubled(names)
  local seen = {}
  for _, name in ipairs(names) do
    if seen[name] then
      return name
    end
    seen[name] = name ~= ""
  end
end

-- Of "version slots sizes names".
local parse_ring = remembering(64, function(text)
  local version, slots, some, list = text:match("^(%S+) (%S+) (%S*) (.*)$")
  version, slots = whole(version, 1, MAX_NUMBER), whole(slots, 1, MAX_SLOTS)
  if not (version and slots) then
    return nil
  end
  local ring = { version = version, slots = slots, names = {}, sizes = {} }
  local sizes, sum = {}, 0
  if list ~= "" then
    ring.names, sizes = split(list, "\n"), split(some, ",")
  end
  if #ring.names > MAX_NODES or #sizes ~= #ring.names or doubled(ring.names) then
    return nil
  end
  for i, name in ipairs(ring.names) do
    local size = whole(sizes[i], 0, slots)
    if not size or (name ~= "" and not is_name(name)) then
      return nil
    end
    ring.sizes[i] = size
    sum = sum + size
  end
  if sum == 0 or sum == slots then
    return ring
  end
end)

-- The ring as it stands, and its owners if asked for; nil where there is none, or none to be trusted.
local function read_ring(key, with_owners)
  local fields = redis.call("HMGET", key, "version", "slots", "sizes", "names")
  if not (fields[1] and fields[2] and fields[3] and fields[4]) then
    return nil
  end
  local text = table.concat(fields, " ")
  if #text > MAX_NODES * (MAX_NAME + 9) + 64 then
    return nil
  end
  local ring = parse_ring(text)
  if not ring or redis.call("HSTRLEN", key, "owners") ~= ring.slots then
    return nil
  end
  if with_owners then
    local found = redis.call("HMGET", key, "owners", "check")
    if found[2] and found[2] ~= redis.sha1hex(found[1]) then
      return nil
    end
    return ring, found[1]
  end
  return ring
end

-- What stands for each node's capacity: the mean of those that are known where its own is not, the same for all where
-- none is, 0 where the node is out. The same arithmetic in the same order as `ring_weights` of agent/core.
local function ring_weights(nodes)
  local sum, known = 0, 0
  for _, node in ipairs(nodes) do
    if node and node.bound > 0 and node.capacity and node.capacity > 0 then
      sum, known = sum + node.capacity, known + 1
    end
  end
  local mean = known > 0 and sum / known or 1
  local weights = {}
  for i, node in ipairs(nodes) do
    local is_known = node and node.capacity and node.capacity > 0
    weights[i] = node and node.bound > 0 and (is_known and node.capacity or mean) or 0
  end
  return weights
end

-- Slots in proportion to the weights, by largest remainders; ties go to the smaller index. The same
-- arithmetic in the same order as `ring_sizes` of agent/core, so that the sizes are the same.
local function ring_sizes(weights, slots)
  local count, largest = 0, 0
  for _, weight in ipairs(weights) do
    if weight > 0 then
      count = count + 1
      largest = math.max(largest, weight)
    end
  end
  local sizes = {}
  if count == 0 or count > slots then
    for i = 1, #weights do
      sizes[i] = 0
    end
    return sizes
  end
  local total = 0
  for _, weight in ipairs(weights) do
    total = total + weight / largest
  end
  local order, given = {}, 0
  for i, weight in ipairs(weights) do
    sizes[i] = 0
    if weight > 0 then
      local quota = weight / largest / total * slots
      sizes[i] = math.floor(quota)
      given = given + sizes[i]
      order[#order + 1] = { rest = quota - sizes[i], index = i }
    end
  end
  table.sort(order, function(a, b)
    if a.rest ~= b.rest then
      return a.rest > b.rest
    end
    return a.index < b.index
  end)
  for i = 1, slots - given do
    local index = order[(i - 1) % #order + 1].index
    sizes[index] = sizes[index] + 1
  end
  for _, entry in ipairs(order) do
    if sizes[entry.index] == 0 then
      local most = 1
      for i = 2, #sizes do
        if sizes[i] > sizes[most] then
          most = i
        end
      end
      sizes[most] = sizes[most] - 1
      sizes[entry.index] = 1
    end
  end
  return sizes
end

local function worth_moving(held, wanted, dead_band)
  for i = 1, math.max(#held, #wanted) do
    local old, new = held[i] or 0, wanted[i] or 0
    if (old == 0) ~= (new == 0) or math.abs(old - new) > dead_band * old then
      return true
    end
  end
  return false
end

-- Moves exactly the surplus, going through the slots upwards; returns the owners and the runs that
-- changed. The same order as `RingTable::change_to` of agent/core.
local function move(owners, slots, sizes)
  local held = {}
  for i = 1, MAX_NODES do
    held[i] = 0
  end
  local bytes = {}
  for first = 1, slots, 4096 do
    local last = math.min(first + 4095, slots)
    local chunk = { owners:byte(first, last) }
    for i = 1, #chunk do
      local owner = chunk[i]
      bytes[first + i - 1] = owner
      if owner ~= NOBODY then
        held[owner + 1] = held[owner + 1] + 1
      end
    end
  end
  local gainer, runs, run = 1, {}, nil
  for slot = 1, slots do
    local owner = bytes[slot]
    if owner == NOBODY or held[owner + 1] > (sizes[owner + 1] or 0) then
      while gainer <= #sizes and held[gainer] >= sizes[gainer] do
        gainer = gainer + 1
      end
      local to = gainer <= #sizes and gainer - 1 or NOBODY
      if to ~= owner then
        if owner ~= NOBODY then
          held[owner + 1] = held[owner + 1] - 1
        end
        if to ~= NOBODY then
          held[gainer] = held[gainer] + 1
        end
        bytes[slot] = to
        if run and run.owner == to and run.first + run.count == slot - 1 then
          run.count = run.count + 1
        else
          run = { first = slot - 1, count = 1, owner = to }
          runs[#runs + 1] = run
        end
      end
    end
  end
  local chunks = {}
  for first = 1, slots, 4096 do
    chunks[#chunks + 1] = string.char(unpack(bytes, first, math.min(first + 4095, slots)))
  end
  return table.concat(chunks), runs
end

local function message(from, to, names, runs)
  local named = {}
  for i, name in ipairs(names) do
    if name ~= "" then
      named[#named + 1] = (i - 1) .. "=" .. name
    end
  end
  local moved = "full"
  if #runs <= MAX_RUNS then
    local parts = {}
    for i, run in ipairs(runs) do
      parts[i] = run.first .. ":" .. run.count .. ":" .. run.owner
    end
    moved = #parts > 0 and table.concat(parts, ",") or "-"
  end
  local list = #named > 0 and table.concat(named, ",") or "-"
  return table.concat({ exact(from), exact(to), list, moved }, " ")
end

local function store_ring(key, ring)
  redis.call(
    "HSET", key,
    "version", exact(ring.version),
    "slots", exact(ring.slots),
    "names", table.concat(ring.names, "\n"),
    "sizes", table.concat(ring.sizes, ","),
    "owners", ring.owners,
    "check", redis.sha1hex(ring.owners)
  )
end

-- A ring that was made from nothing or restored, or whose nodes were all lost, waits until every live
-- node had time to report: or else the first one would be given all slots.
local function settling(key, now, known, alone, settle_ms)
  local text = redis.call("HGET", key, "settle_until")
  local till = number(text or "", 0, now + MAX_LEASE_MS)
  if text and known and not (till and now < till) then
    -- A ring that is lost later settles anew, so that a follower can restore it.
    redis.call("HDEL", key, "settle_until")
    till = nil
  end
  if not till and (alone or not known) then
    till = now + settle_ms
    redis.call("HSET", key, "settle_until", exact(till))
  end
  return till ~= nil and now < till
end

local function has_others(ring, name)
  for i, size in ipairs(ring.sizes) do
    if size > 0 and ring.names[i] ~= name then
      return true
    end
  end
  return false
end

-- Gives every live node an index and its slots, when the change is worth moving keys for; returns
-- the version, 0 while there is no ring. `first`: the node before whose report there was none.
local function rebalance(key, live, first, slots, dead_band, now, settle_ms)
  local ring = read_ring(key, false)
  local alone = ring and first and has_others(ring, first)
  if settling(key, now, ring ~= nil, alone, settle_ms) then
    return ring and ring.version or 0
  end
  if not ring or ring.slots ~= slots then
    -- From nothing, or to another size: there is no history to keep.
    local version = ring and ring.version or 0
    ring = { version = version, slots = slots, names = {}, sizes = {} }
    ring.owners = string.rep(string.char(NOBODY), slots)
  end
  local names, index = {}, {}
  for i, name in ipairs(ring.names) do
    names[i] = live[name] and name or ""
    if live[name] then
      index[name] = i
    end
  end
  local arrived = {}
  for name in pairs(live) do
    if not index[name] then
      arrived[#arrived + 1] = name
    end
  end
  table.sort(arrived)
  local free = 1
  for _, name in ipairs(arrived) do
    while names[free] and names[free] ~= "" do
      free = free + 1
    end
    names[free] = name
  end
  local nodes = {}
  for i, name in ipairs(names) do
    nodes[i] = live[name] or false
  end
  local wanted = ring_sizes(ring_weights(nodes), slots)
  -- A name that takes over a freed index in the same call moves no slot, and is a change all the same.
  local renamed = table.concat(names, "\n") ~= table.concat(ring.names, "\n")
  if not renamed and not worth_moving(ring.sizes, wanted, dead_band) then
    return ring.version
  end
  local owners = ring.owners
  if not owners then
    local whole_ring, found = read_ring(key, true)
    if not whole_ring then
      -- Damaged: followers have it whole, and restore it once it is gone.
      redis.call("DEL", key)
      settling(key, now, false, false, settle_ms)
      return 0
    end
    owners = found
  end
  local runs
  owners, runs = move(owners, slots, wanted)
  while #names > 0 and names[#names] == "" do
    names[#names], wanted[#names] = nil, nil
  end
  local from = ring.version
  -- Only somebody else can have written a version at the end.
  local to = from < MAX_NUMBER and from + 1 or 1
  store_ring(key, { version = to, slots = slots, names = names, sizes = wanted, owners = owners })
  redis.call("PUBLISH", key, message(from, to, names, runs))
  return to
end

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

-- What others must leave to it and what is wished, of "held demand"; what cannot be read does not count.
local function parse_share(text)
  local held, wish = (text or ""):match("^(%S+) (%S+)$")
  return number(held, 0, MAX_NUMBER) or 0, number(wish, 0, MAX_NUMBER) or 0
end

-- The same of all proxies together, as kept; nil where it cannot be.
local function parse_sum(text)
  if text and #text == 16 then
    local held, wish = struct.unpack("<dd", text)
    return number(held, 0, MAX_SUM), number(wish, 0, MAX_SUM)
  end
end

-- The same, made anew, without one of the proxies.
local function sum_shares(key, node, proxies, without)
  local fields = {}
  for proxy in pairs(proxies) do
    if proxy ~= without then
      fields[#fields + 1] = node .. " " .. proxy
    end
  end
  local taken, wished = 0, 0
  for _, text in ipairs(get_all(key, fields)) do
    local held, wish = parse_share(text)
    taken, wished = taken + held, wished + wish
  end
  return taken, wished
end

-- A share in whole requests of mean cost, as far as they are free: a part of a request is of use to nobody,
-- and many proxies would keep one each. Of less than one request it is what it is.
-- @param dither number within 0..1, spread evenly over the proxies, so that together they have what is wanted;
--   another at each time, so that in the mean each has
local function in_requests(wanted, free, mean_cost, dither)
  local most = math.min(wanted, free)
  -- Of a billion requests one more or less is nothing, and what is beyond numbers cannot be counted.
  if mean_cost <= 1e-9 * most or most < mean_cost then
    return most
  end
  -- Sums of shares drift by less than this.
  local whole_ones = math.min(math.floor(wanted / mean_cost + dither), math.floor(free / mean_cost + 1e-9))
  return math.min(whole_ones * mean_cost, free)
end

-- How many proxies come before it by name.
local function place_of(proxy, proxies)
  local before = 0
  for name in pairs(proxies) do
    if name < proxy then
      before = before + 1
    end
  end
  return before
end

-- What of the nodes' bounds this proxy may use. Shares go by demand. One is raised only by what the
-- others have given up, so that together they never exceed the bound.
-- The sum over the proxies is kept with each node, or else a call would read all shares of all proxies.
-- Who is new at a node leaves half of what is free, for it is seldom alone: the threads of a proxy start together, and
-- what one holds the others would have to wait for. At a node that is back, others may hold what it does not know of.
-- In every call one node's is made anew, in turn, so that none is wrong for long.
-- Of a share that falls, the proxy goes on holding what it may have in flight until it hears of that: or else
-- the others would fill the node on top of it.
-- @param asked list of { name, demand, told, held, node }; each gets its `granted`, as text
local function grant(keys, asked, proxy, proxies, count, now)
  local names, fields = {}, {}
  for i, entry in ipairs(asked) do
    names[i] = entry.name
    fields[i] = entry.name .. " " .. proxy
  end
  local sums, owns = get_all(keys[5], names), get_all(keys[4], fields)
  local shares, new_sums = {}, {}
  local turn = now % math.max(#asked, 1) + 1
  -- They change their rounding one after the other, so that at any time it is spread evenly.
  local place = place_of(proxy, proxies)
  local round = place + math.floor(now / ROUNDED_MS + place / count)
  for i, entry in ipairs(asked) do
    local held, wish = parse_share(owns[i])
    local all_held, all_wish = parse_sum(sums[i])
    local taken, sum
    if i ~= turn and all_held and all_wish and all_held - held >= CANCELLED * all_held then
      taken, sum = all_held - held, math.max(all_wish - wish, 0)
    else
      taken, sum = sum_shares(keys[4], entry.name, proxies, proxy)
    end
    local bound, demand = entry.node.bound, entry.demand
    local most = math.max(bound, MAX_TIMES_OTHERS * sum)
    if demand > most then
      demand, entry.told = most, exact(most)
    end
    sum = sum + demand
    -- Above nothing, so that shares are numbers.
    local floor = FLOOR_DEMAND * math.max(sum, bound, 1e-9) / count
    local wanted = bound * (demand + floor) / (sum + floor * count)
    local free = math.max(0, bound - taken)
    if not owns[i] then
      wanted = math.min(wanted, free / 2)
    end
    local granted = math.min(wanted, free)
    if count > 1 then
      granted = in_requests(wanted, free, entry.node.mean_cost, (round + i) * GOLDEN % 1)
    end
    entry.granted = exact(granted)
    local kept, kept_text = math.min(entry.held, held), entry.granted
    if kept > granted then
      kept_text = exact(kept)
    else
      kept = granted
    end
    shares[2 * i - 1], shares[2 * i] = fields[i], kept_text .. " " .. entry.told
    new_sums[2 * i - 1], new_sums[2 * i] = names[i], struct.pack("<dd", taken + kept, sum)
  end
  set_all(keys[4], shares)
  set_all(keys[5], new_sums)
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
