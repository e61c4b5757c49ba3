-- How long ago by the keeper's clock; 0 for what is from after its last reading, or from a clock of before.
local function since(time, clock)
  return time and math.max(0, clock - time) or 0
end

local function read_clock(keys)
  return whole(redis.call("HGET", keys[1], "clock") or "", 0, MAX_VERSION) or 0
end

-- The keeper's lease runs on the server's clock. Time in which nobody could call does not count, but for a third of a
-- lease; a clock that was set, or another server's after a failover, moves the end of the lease along.
local function tell_time(keys)
  local now = now_ms()
  local fields = redis.call("HMGET", keys[1], "seen", "lease", "keeper_end")
  local seen, lease = whole(fields[1] or "", 1, MAX_VERSION), whole(fields[2] or "", 1, MAX_LEASE_MS) or 0
  redis.call("HSET", keys[1], "seen", exact(now))
  local away = seen and now - seen or 0
  if away > 0 then
    away = math.max(0, away - math.floor(lease / 3))
  end
  local till = away ~= 0 and whole(fields[3] or "", 1, seen + MAX_LEASE_MS)
  if till then
    redis.call("HSET", keys[1], "keeper_end", exact(math.max(1, till + away)))
  end
  return now
end

-- What is in force, or is to be at opens_at; nil where there is nothing, or nothing to be trusted.
local function read_meta(keys)
  local fields = redis.call("HMGET", keys[1], "generation", "version", "opens_at", "lease", "request_limit",
    "when_lost", "ahead", "sure", "epoch", "clock", "lasts")
  local meta = {
    generation = fields[1], version = whole(fields[2] or "", 1, MAX_VERSION),
    opens_at = whole(fields[3] or "", 0, MAX_VERSION),
    lease = whole(fields[4] or "", 1, MAX_LEASE_MS), request_limit = whole(fields[5] or "", 0, MAX_LEASE_MS),
    when_lost = fields[6], ahead = whole(fields[7] or "", 0, MAX_VERSION) or 0,
    -- The version was written by the keeper of now, so that there has been no later one.
    is_sure = fields[8] and fields[8] == fields[9],
    clock = whole(fields[10] or "", 0, MAX_VERSION) or 0, lasts = fields[11] or "",
  }
  local has_all = meta.version and meta.opens_at and meta.lease and meta.request_limit
  if has_all and is_word(meta.generation or "", 64) and (meta.when_lost == "serve" or meta.when_lost == "hold") then
    return meta
  end
end

local function open_in(meta)
  return math.max(0, math.min(meta.opens_at - meta.clock, MAX_WAIT_MS))
end

local function term_of(version)
  return math.floor(version / TERM_VERSIONS)
end

-- Whether the table has been at this version; else it is one that Redis lost, or that never was.
local function has_been(meta, version)
  if version < 1 or version > meta.version then
    return false
  end
  local term = term_of(version)
  if term == term_of(meta.version) then
    return true
  end
  for word in meta.lasts:sub(1, MAX_RECORD_BYTES * 2):gmatch("%d+") do
    local last = whole(word, 1, MAX_VERSION)
    if last and term_of(last) == term then
      return version <= last
    end
  end
  return false
end

-- All entries, and whether they are a table: every rest has a primary.
local function read_table(keys)
  local flat, rests = {}, 0
  if redis.call("HLEN", keys[2]) > 2 * MAX_ENTRIES then
    return flat, false
  end
  for set, state in pairs_of(redis.call("HGETALL", keys[2])) do
    if #set <= MAX_NAME + 1 and is_set(set) and is_state(state) then
      flat[#flat + 1], flat[#flat + 2] = set, state
      rests = rests + (set:sub(1, 1) == "*" and 1 or 0)
    end
  end
  return flat, rests == RESTS
end

-- The changes since a version, oldest first; nil where they are not all known.
local function changes_since(keys, version, newest)
  local found, at = {}, version
  for _, delta in ipairs(redis.call("LRANGE", keys[3], -LOGGED, -1)) do
    local from, to = delta:sub(1, 64):match("^(%d+) (%d+)")
    from, to = whole(from, 0, MAX_VERSION), whole(to, 0, MAX_VERSION)
    if from and to and from == at and to > at then
      found[#found + 1], at = delta, to
    end
  end
  return at == newest and found or nil
end

-- Somebody knows another table than Redis does: it has lost what it had acknowledged. What nobody can have published is
-- not heeded.
local function note_ahead(keys, meta, version)
  if version > meta.ahead and version <= meta.version + MAX_AHEAD then
    redis.call("HSET", keys[1], "ahead", exact(version))
  end
end

-- The keeper is to look.
local function damaged(keys, meta)
  note_ahead(keys, meta, meta.version + 1)
  return fail("the table in Redis is damaged: somebody else wrote to " .. keys[2])
end

-- What somebody lacks that knows this version of this generation: `same`, nothing or changes; `whole`, the table.
local function news(keys, meta, generation, version, same, whole_table)
  if generation == meta.generation and has_been(meta, version) then
    local changes = version == meta.version and {} or changes_since(keys, version, meta.version)
    if changes then
      append(same, changes)
      return same
    end
  end
  append(whole_table, { meta.generation, meta.version })
  local entries, is_whole = read_table(keys)
  if not is_whole then
    return damaged(keys, meta)
  end
  append(whole_table, entries)
  return whole_table
end

local function members_changed(keys)
  local members = whole(redis.call("HGET", keys[1], "members") or "", 0, MAX_VERSION - 1) or 0
  redis.call("HSET", keys[1], "members", exact(members + 1))
end

local function note_gone(keys, id)
  if redis.call("HLEN", keys[7]) >= MAX_GONE then
    local oldest, least
    for other, text in pairs_of(redis.call("HGETALL", keys[7])) do
      local went = whole(text, 0, MAX_VERSION) or MAX_VERSION
      if not least or went < least then
        oldest, least = other, went
      end
    end
    redis.call("HDEL", keys[7], oldest)
  end
  redis.call("HSET", keys[7], id, FRESH)
end
