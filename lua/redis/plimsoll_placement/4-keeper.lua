-- Who is the keeper: its id, epoch, and for how many ms it still has the lease.
local function read_keeper(keys, now)
  local fields = redis.call("HMGET", keys[1], "keeper", "epoch", "keeper_end")
  local till = whole(fields[3] or "", 0, now + MAX_LEASE_MS) or 0
  local keeper = is_word(fields[1] or "", MAX_ID) and fields[1] or ""
  return keeper, whole(fields[2] or "", 0, MAX_VERSION - 1) or 0, math.max(0, till - now)
end

local function parse_agent(args)
  if not is_word(args[1], MAX_ID) then return nil, fail("agent must be 1..200 visible ASCII characters") end
  local epoch = whole(args[2], 0, MAX_VERSION)
  if not epoch then return nil, fail(BAD_EPOCH) end
  return epoch
end

-- Nil where it is the keeper's newest word; else what to answer.
local function fenced(keys, agent, epoch, now)
  local keeper, newest = read_keeper(keys, now)
  if keeper == "" then
    return refuse("FENCED", "there is no keeper: claim")
  end
  if keeper ~= agent or newest ~= epoch then
    return refuse("FENCED", "epoch " .. exact(epoch) .. " of " .. agent .. " is over: the keeper is " .. keeper
      .. " with epoch " .. exact(newest))
  end
end

-- A new term: every silence begins anew, as nobody knows what dispatchers told the one before, or another server. Where
-- it is another server, somebody may go on by what he told or was told there until a lease after that one stops to
-- take reports: a dispatcher that holds and is not heard stands for all of these.
local function begin_term(keys, lease, server, is_same)
  for id, text in pairs_of(redis.call("HGETALL", keys[4])) do
    local known = name_of(id) and parse_dispatcher(text)
    if known then
      known.heard = nil
      write_dispatcher(keys, id, known)
    end
  end
  local meta = read_meta(keys)
  if meta and meta.when_lost == "hold" and not is_same then
    write_dispatcher(keys, "former-server#" .. server, {
      version = 0, joined = 0, lease = math.max(lease, meta.lease), holds = true,
    })
    members_changed(keys)
  end
end

-- claim(agent, lease_ms, dispatcher_lease_ms, request_limit_ms, when_lost, margin_ms, server): { "keeper", epoch,
-- is_same }, where nobody else has the lease, or { "other", keeper, ms it still has it }.
--   agent: the id of this run of it. dispatcher_lease_ms to when_lost are what dispatchers are told when they join.
--   margin_ms: for so long after its lease a dispatcher that holds may go on, as a server that was replaced may have
--     taken its reports for so long; at least 1000.
--   server: what tells the history of this server's data from those of all others. is_same: 1 where it is the one that
--     was told with `settle`, so that nothing is lost of what was written since, else 0.
local function claim(keys, args)
  local agent, lease, told = args[1], whole(args[2], 1, MAX_LEASE_MS), whole(args[3], 1, MAX_LEASE_MS)
  local request_limit, when_lost = whole(args[4], 0, MAX_LEASE_MS), args[5]
  local margin, server = whole(args[6], MIN_MARGIN_MS, MAX_MARGIN_MS), args[7]
  if not is_word(agent, MAX_ID) then return fail("agent must be 1..200 visible ASCII characters") end
  if not lease then return fail("lease_ms must be a whole number within 1..3600000") end
  if not told then return fail("dispatcher_lease_ms must be a whole number within 1..3600000") end
  if not request_limit then return fail("request_limit_ms must be a whole number within 0..3600000") end
  if when_lost ~= "serve" and when_lost ~= "hold" then return fail("when_lost must be serve or hold") end
  if not margin then return fail("margin_ms must be a whole number within 1000..7200000") end
  if not is_word(server, 64) or server:find("#", 1, true) then return fail(BAD_SERVER) end
  local now = tell_time(keys)
  local keeper, epoch, left = read_keeper(keys, now)
  if keeper ~= "" and keeper ~= agent and left > 0 then
    return { "other", keeper, left }
  end
  local is_same = redis.call("HGET", keys[1], "server") == server
  begin_term(keys, told, server, is_same)
  redis.call(
    "HSET", keys[1],
    "keeper", agent,
    "epoch", exact(epoch + 1),
    "keeper_end", exact(now + lease),
    "lease", exact(told),
    "request_limit", exact(request_limit),
    "when_lost", when_lost,
    "margin", exact(margin)
  )
  -- Costs of nobody knows how long.
  redis.call("DEL", keys[6])
  return { "keeper", epoch + 1, is_same and 1 or 0 }
end

-- resign(agent, epoch): the lease is free at once. 1, or 0 where it is another's.
local function resign(keys, args)
  local epoch, bad = parse_agent(args)
  if bad then return bad end
  local now = tell_time(keys)
  if fenced(keys, args[1], epoch, now) then
    return 0
  end
  redis.call("HSET", keys[1], "keeper_end", "0")
  return 1
end

-- Takes those for gone that hold and have not been heard for too long, and drops what cannot be read.
local function look_at_dispatchers(keys, clock)
  local flat, count = {}, 0
  local margin = whole(redis.call("HGET", keys[1], "margin") or "", MIN_MARGIN_MS, MAX_MARGIN_MS) or MAX_MARGIN_MS
  for id, text in pairs_of(redis.call("HGETALL", keys[4])) do
    local known = name_of(id) and parse_dispatcher(text)
    if not known then
      -- Somebody may serve by it all the same.
      remove(keys, id, name_of(id) == nil)
    elseif known.holds and since(known.heard, clock) > known.lease + margin then
      remove(keys, id, false)
    else
      if not known.heard or known.heard > clock then
        known.heard = clock
        write_dispatcher(keys, id, known)
      end
      count = count + 1
      append(flat, { id, since(known.heard, clock), known.version, known.joined, "" })
    end
  end
  local ids = {}
  for i = 1, count do
    ids[i] = flat[5 * i - 4]
  end
  for i, busy in ipairs(get_all(keys[5], ids)) do
    flat[5 * i] = busy and #busy <= MAX_BUSY * (MAX_NAME + 2) and busy or ""
  end
  return flat, count
end

-- Of those that went: who did so long enough ago is dropped.
local function look_at_gone(keys, clock, request_limit)
  local flat, over = {}, {}
  for id, text in pairs_of(redis.call("HGETALL", keys[7])) do
    local went = whole(text, 0, clock)
    if not went then
      went = clock
      redis.call("HSET", keys[7], id, exact(went))
    end
    if clock - went > request_limit or #id > MAX_ID then
      over[#over + 1] = id
    else
      append(flat, { id, clock - went })
    end
  end
  drop(keys[7], over)
  return flat
end
