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
    -- What has passed of the round, as far as it can matter: times are to stay above 0.
    local passed = math.min(seen - since, MAX_LEASE_MS)
    shift_leases(keys, function(record)
      local left = math.min(lease_end_of(record, since, seen) - seen, record.lease)
      -- One that cannot have been then stays: somebody else wrote it, or that time.
      if record.lease_end > seen + MAX_LEASE_MS or record.lease_end + MAX_LEASE_MS < since then
        return 0
      end
      -- One that has run out stays so.
      return left > 0 and now + left - math.max(0, passed - math.floor(record.lease / 3)) - record.lease_end
        or -record.lease_end
    end)
    since = math.max(1, now - passed)
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
