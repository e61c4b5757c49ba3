--- A dispatcher's copy of the table of primaries, and its requests in flight: the port of agent/core's
-- `placement::Follower`. No I/O, no HAProxy: time and hashes are passed in.
--
-- Entries have their names on the wire: `=NAME`, or `*N` for a rest, which names without an entry share. An admitted
-- request has a ticket until it ends. If it ends without a response it is in doubt: its node may still work on it for
-- up to the request limit.
--
-- Actions and tasks may be interrupted after 10,000 instructions: a new table is built separately, and the one in
-- force is changed atomically.

local find, match, gmatch, gsub, sub = string.find, string.match, string.gmatch, string.gsub, string.sub
local huge, max = math.huge, math.max

local M = {}

M.RESTS = 64
-- Maximum names with an entry of their own, and as many in handover.
local MAX_NAMED = 2 * 16384
local MAX_NAME_BYTES, MAX_NODE_BYTES = 128, 128
local MAX_VERSION = (1 << 53) - 1
local NEVER = -1

--- Nothing yields out of a callback of the string library, so HAProxy does not interrupt it.
local function in_one_piece(change)
  gsub("-", "-", function()
    change()
  end)
end
M.in_one_piece = in_one_piece

-- Whether a text is a valid name of an object set: 1 to 128 visible ASCII characters.
local function is_name(text)
  return #text <= MAX_NAME_BYTES and find(text, "^[!-~]+$") ~= nil
end

-- Parses a word on the wire: the name, or the number of a rest.
local function set_of(word)
  local first = sub(word, 1, 1)
  if first == "=" then
    local name = sub(word, 2)
    return is_name(name) and name or nil
  elseif first == "*" then
    local rest = math.tointeger(tonumber(match(word, "^%*(%d%d?)$")))
    return nil, rest and rest < M.RESTS and rest or nil
  end
end

-- Parses a state on the wire: the node and whether the set is leaving it; "-" has none.
local function state_of(word)
  local leaving, node = match(word, "^(>?)([%w._:/%-]+)$")
  if node and word ~= "-" and #node <= MAX_NODE_BYTES then
    return node, leaving == ">"
  end
end

local function version_of(text)
  local version = math.tointeger(tonumber(text))
  return version and version >= 0 and version <= MAX_VERSION and version or nil
end

--- @param rest_of function returns the number of a name's rest, from the name and the context passed to `route`
function M.new(rest_of)
  local self = { due = false, placed = 0, doubted = 0 }
  -- The table in force; nil before the dispatcher has joined and while it is suspended.
  local generation, version, names, named, rests, leaving
  local request_limit, lease, hold = 0, huge, false
  local heard_at, heard_wall = 0, 0
  -- Word and node to their count, which is also the ticket. A count for a former node of an entry (`past`) is removed
  -- when nothing of it is left.
  local counts, doubts, under_way, in_doubt = {}, {}, 0, 0

  local function is_busy(count)
    return count.under_way > 0 or count.doubt_until > NEVER
  end

  local function count_of(at)
    local key = at.word .. " " .. at.node
    local count = counts[key]
    if not count then
      count = { key = key, word = at.word, node = at.node, under_way = 0, doubt_until = NEVER }
      counts[key] = count
    end
    count.past = false
    at.count = count
    return count
  end

  local function pass(count)
    count.past = true
    if not is_busy(count) then
      counts[count.key] = nil
    end
  end

  -- Reads a whole table from a flat list, from an index on.
  local function read(flat, first)
    local new = { names = {}, named = 0, rests = {}, leaving = {} }
    for i = first, #flat, 2 do
      local word, state = flat[i], flat[i + 1]
      if type(word) ~= "string" or type(state) ~= "string" then
        return nil
      end
      local name, rest = set_of(word)
      local node, is_leaving = state_of(state)
      if not node or not (name or rest) then
        return nil
      end
      local made = { word = word, node = node, leaving = is_leaving }
      if name then
        new.named = new.named + (new.names[name] and 0 or 1)
        new.names[name] = made
      else
        new.rests[rest] = made
      end
      new.leaving[word] = is_leaving and made or nil
    end
    for rest = 0, M.RESTS - 1 do
      if not new.rests[rest] then
        return nil
      end
    end
    return new.named <= MAX_NAMED and new or nil
  end

  local function put(new, new_version)
    for _, count in pairs(counts) do
      pass(count)
    end
    names, named, rests, leaving, version = new.names, new.named, new.rests, new.leaving, new_version
    self.due = next(leaving) ~= nil
  end

  --- Applies the answer to the most recent join.
  -- @param flat table SET, STATE, … from `first` on
  -- @param terms table lease and request_limit in s, hold (whether no request is admitted after a lease of silence)
  -- @return true, or nil and the error
  function self.joined(new_generation, new_version, flat, first, terms)
    local new = read(flat, first)
    new_version = version_of(new_version)
    if not new or not new_version or not is_name(new_generation) then
      return nil, "a table of primaries that cannot be read"
    end
    in_one_piece(function()
      put(new, new_version)
      generation = new_generation
      request_limit, lease, hold = terms.request_limit, terms.lease, terms.hold
    end)
    return true
  end

  --- Replaces the table after missed changes. Ignored if it is not newer, or if the dispatcher has not joined: it may
  -- then date from before the suspension.
  function self.on_table(new_version, flat, first)
    local new = read(flat, first)
    new_version = version_of(new_version)
    if not new or not new_version then
      return nil, "a table of primaries that cannot be read"
    end
    in_one_piece(function()
      if version and new_version > version then
        put(new, new_version)
      end
    end)
    return true
  end

  local function apply(changes, to)
    for _, change in ipairs(changes) do
      local word, name, rest = change.word, change.name, change.rest
      local made = change.node and { word = word, node = change.node, leaving = change.leaving } or nil
      local before
      if rest then
        before = rests[rest]
      else
        before = names[name]
      end
      if before and before.count then
        pass(before.count)
      end
      if rest then
        rests[rest] = made
      else
        named = named + (made and 1 or 0) - (before and 1 or 0)
        names[name] = made
      end
      leaving[word] = made and made.leaving and made or nil
      self.due = self.due or leaving[word] ~= nil
    end
    version = to
  end

  --- Applies a change, `FROM TO SET STATE …`.
  -- @return nil, or the reason for which it does not apply: "late" (ignore it), "missed" or "wrong" (the whole table is
  -- needed)
  function self.on_delta(text)
    local from, to, rest_of_text = match(text, "^(%d+) (%d+)(.*)$")
    from, to = version_of(from), version_of(to)
    if not from or not to then
      return "wrong"
    end
    if not version then
      return "missed"
    elseif to <= version then
      return "late"
    elseif from ~= version then
      return "missed"
    end
    local changes, words = {}, gmatch(rest_of_text, "%S+")
    for word in words do
      local state = words()
      local name, rest = set_of(word)
      local node, is_leaving = state_of(state or "")
      if not (name or rest) or not (node or (state == "-" and name)) then
        return "wrong"
      end
      changes[#changes + 1] = { word = word, name = name, rest = rest, node = node, leaving = is_leaving }
      if named + #changes > MAX_NAMED then
        return "wrong"
      end
    end
    local gap
    in_one_piece(function()
      -- Another change may have been applied while this was read.
      if version ~= from then
        gap = version and version >= to and "late" or "missed"
      else
        apply(changes, to)
      end
    end)
    return gap
  end

  --- Admits no requests until the dispatcher has rejoined.
  function self.suspend()
    generation, version, names, named, rests, leaving = nil, nil, nil, nil, nil, nil
  end

  --- Records contact with the keeper, as of the time when the request was sent.
  -- @param wall number s of a clock that also runs while the process is stopped, which HAProxy's does not
  function self.heard(now, wall)
    heard_at, heard_wall = now, wall
  end

  -- Suspends after a lease of silence, if `hold` is set.
  local function listen(now, wall)
    if version and (now - heard_at > lease or wall() - heard_wall > lease) then
      self.suspend()
    end
  end

  --- Version of the table; nil before the dispatcher has joined and while it is suspended.
  function self.version()
    return version
  end

  --- Generation of the table; nil likewise.
  function self.generation()
    return generation
  end

  --- Routes a request for an object set.
  -- @param context passed to `rest_of` @param wall function s @return ticket with the field `node`, and the entry's
  -- word; or nil and "name" (invalid), "suspended" (not joined) or "moving" (in handover)
  function self.route(now, wall, name, context)
    if not is_name(name) then
      return nil, "name"
    end
    if hold then
      listen(now, wall)
    end
    if not version then
      return nil, "suspended"
    end
    local at = names[name] or rests[rest_of(name, context)]
    if at.leaving then
      return nil, "moving", at.word
    end
    local count = at.count or count_of(at)
    count.under_way = count.under_way + 1
    under_way = under_way + 1
    self.placed = self.placed + 1
    return count, at.word
  end

  local function settle(count)
    if is_busy(count) then
      return
    end
    local at = leaving and leaving[count.word]
    if at and at.node == count.node then
      self.due = true
    end
    if count.past then
      counts[count.key] = nil
    end
  end

  local function ended(count)
    count.under_way = count.under_way - 1
    under_way = under_way - 1
    settle(count)
  end

  --- Ends a request that the node has answered, or that never reached it.
  self.answered = ended

  --- Ends a request without a response: the node may still be working on it.
  function self.unanswered(count, now)
    self.doubted = self.doubted + 1
    in_doubt = in_doubt + (doubts[count] and 0 or 1)
    doubts[count] = true
    count.doubt_until = max(count.doubt_until, now + request_limit)
    ended(count)
  end

  local function end_doubts(now)
    for count in pairs(doubts) do
      if count.doubt_until <= now then
        count.doubt_until, doubts[count] = NEVER, nil
        in_doubt = in_doubt - 1
        settle(count)
      end
    end
  end

  --- Report to the keeper, once a period and when a set has become free.
  -- @return version, and the sets in handover that still have requests here; nil without a table
  function self.report(now)
    local told, busy
    in_one_piece(function()
      end_doubts(now)
      self.due = false
      if version then
        told, busy = version, {}
        for word, at in pairs(leaving) do
          local count = counts[word .. " " .. at.node]
          if count and is_busy(count) then
            busy[#busy + 1] = word
          end
        end
      end
    end)
    return told, busy
  end

  --- @return number of requests in flight, and of sets in doubt at some node
  function self.at_work()
    return under_way, in_doubt
  end

  return self
end

return M
