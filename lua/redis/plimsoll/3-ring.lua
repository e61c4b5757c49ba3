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
