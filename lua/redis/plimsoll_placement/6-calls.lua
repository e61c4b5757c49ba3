-- follow(generation, version, members): what an agent lacks of the table, so that it can give it back to a Redis that
-- lost it. { "none" }, or { "ok", members, ids, version, delta, … }, or { "table", members, ids, generation, version,
-- set, state, … }.
--   members: the number heard last; ids are the dispatchers, blank-separated, where it is another now.
local function follow(keys, args)
  local generation, version, members = args[1], whole(args[2], 0, MAX_VERSION), whole(args[3], 0, MAX_VERSION)
  if not is_word(generation, 64) then return fail(BAD_GENERATION) end
  if not version then return fail(BAD_VERSION) end
  if not members then return fail("members must be a whole number within 0..2^53-1") end
  tell_time(keys)
  local meta = read_meta(keys)
  if not meta then
    return { "none" }
  end
  if generation == meta.generation and not has_been(meta, version) and not meta.is_sure then
    note_ahead(keys, meta, version)
    return { "ok", members, "", meta.version }
  end
  local newest = whole(redis.call("HGET", keys[1], "members") or "", 0, MAX_VERSION) or 0
  local ids = {}
  if newest ~= members then
    for _, id in ipairs(redis.call("HKEYS", keys[4])) do
      ids[#ids + 1] = name_of(id) and id or nil
    end
  end
  local list = table.concat(ids, " ")
  return news(keys, meta, generation, version, { "ok", newest, list, meta.version }, { "table", newest, list })
end

-- status(): for people. { generation, version, open_in_ms, keeper, epoch, ms the keeper has the lease, lease_ms,
-- request_limit_ms, when_lost, plan, dispatchers, gone, id, age_ms, version, … of each dispatcher, id, age_ms, … of
-- each that went }; generation is empty where there is no table.
local function status(keys)
  local now, clock = now_ms(), read_clock(keys)
  local meta = read_meta(keys)
  local keeper, epoch, left = read_keeper(keys, now)
  local plan = redis.call("HGET", keys[1], "plan") or ""
  local dispatchers, gone = {}, {}
  for id, text in pairs_of(redis.call("HGETALL", keys[4])) do
    local known = name_of(id) and parse_dispatcher(text)
    if known then
      append(dispatchers, { id, since(known.heard, clock), known.version })
    end
  end
  for id, text in pairs_of(redis.call("HGETALL", keys[7])) do
    append(gone, { id, since(whole(text, 0, MAX_VERSION), clock) })
  end
  local reply = {
    meta and meta.generation or "", meta and meta.version or 0, meta and open_in(meta) or 0, keeper, epoch, left,
    meta and meta.lease or 0, meta and meta.request_limit or 0, meta and meta.when_lost or "", plan:sub(1, MAX_PLAN),
    #dispatchers / 3, #gone / 2,
  }
  append(reply, dispatchers)
  append(reply, gone)
  return reply
end

-- forget(id): somebody who knows says that a dispatcher is dead. 1, or 0 where there is none of that id.
local function forget(keys, args)
  local id = args[1]
  if not name_of(id) then return fail(BAD_ID) end
  tell_time(keys)
  if redis.call("HEXISTS", keys[4], id) == 0 then
    return 0
  end
  remove(keys, id, false)
  return 1
end

-- wish(set, node): asks the keeper to move a set. How many wishes wait for it.
local function wish(keys, args)
  local set, node = args[1] or "", args[2] or ""
  if #set > MAX_NAME + 1 or not is_set(set) then
    return fail(WHAT_A_SET_IS)
  end
  if not is_node(node) then return fail("node name must be 1..128 of A-Za-z0-9._:/-") end
  tell_time(keys)
  local wishes = redis.call("HGET", keys[1], "wishes") or ""
  local _, words = wishes:gsub("%S+", "")
  if words >= 2 * MAX_WISHES then
    return fail(MAX_WISHES .. " moves wait for a keeper, which is the most")
  end
  redis.call("HSET", keys[1], "wishes", (wishes == "" and "" or wishes .. " ") .. set .. " " .. node)
  return words / 2 + 1
end

-- Says which key is somebody else's, before anything is written.
local function on_keys(function_name, callback)
  return function(keys, args)
    if #keys ~= 7 then
      return fail(function_name .. " needs 7 keys")
    end
    for i, key in ipairs(keys) do
      local kind, wanted = redis.call("TYPE", key).ok, i == 3 and "list" or "hash"
      if kind ~= wanted and kind ~= "none" then
        return fail("key " .. key .. " holds a " .. kind .. " and not a " .. wanted
          .. ": delete it, or rename the cluster")
      end
    end
    return callback(keys, args)
  end
end

local function register(name, callback)
  redis.register_function("plimsoll_placement_" .. name, on_keys(name, callback))
end

register("join", join)
register("report", report)
register("leave", leave)
register("claim", claim)
register("resign", resign)
register("read", read)
register("open", open)
register("publish", publish)
register("heed", heed)
register("settle", settle)
register("follow", follow)
register("forget", forget)
register("wish", wish)
redis.register_function({
  function_name = "plimsoll_placement_status", callback = on_keys("status", status), flags = { "no-writes" },
})
redis.register_function({
  function_name = "plimsoll_placement_version",
  callback = function()
    return VERSION
  end,
  flags = { "no-writes", "allow-stale" },
})
