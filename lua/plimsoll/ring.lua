--- The ring in a proxy: a string with one byte per slot, the index of its owner.
-- A lookup reads one byte, and a new ring is one new string: nothing is built per slot.

local byte, sub, rep, concat, char = string.byte, string.sub, string.rep, table.concat, string.char
local tonumber = tonumber

local M = {}

--- Owner of a slot while no node takes work.
M.NOBODY = 255
M.MAX_NODES = 255
M.MAX_SLOTS = 1 << 20
-- Maximum probes of a key.
local PROBES = 64
-- Slots that are unpacked at once.
local CHUNK = 128

--- The slot of a hash (the key's XXH32).
function M.slot(hash, slots)
  return (hash * slots) >> 32
end

--- Hash of a key's probe number `probe`, 0 for its own hash: MurmurHash3's fmix32 over a Weyl sequence.
function M.probe_hash(hash, probe)
  if probe == 0 then
    return hash
  end
  local h = (hash + probe * 0x9e3779b9) & 0xffffffff
  h = ((h ~ (h >> 16)) * 0x85ebca6b) & 0xffffffff
  h = ((h ~ (h >> 13)) * 0xc2b2ae35) & 0xffffffff
  return h ~ (h >> 16)
end

--- A ring from untrusted data, or nil and the error.
-- @param version integer
-- @param names table index (from 1) to name, "" for a free index
-- @param owners string one byte per slot
function M.new(version, names, owners)
  if math.type(version) ~= "integer" or version < 1 then
    return nil, "the version is no whole number above 0"
  end
  if #owners < 1 or #owners > M.MAX_SLOTS then
    return nil, #owners .. " slots: must be within 1.." .. M.MAX_SLOTS
  end
  if #names > M.MAX_NODES then
    return nil, #names .. " nodes: a ring has at most " .. M.MAX_NODES
  end
  -- Finds each value that occurs with the string library, not slot by slot.
  local members = 0
  for index = 0, M.NOBODY - 1 do
    if owners:find(char(index), 1, true) then
      members = members + 1
      if (names[index + 1] or "") == "" then
        return nil, "owner " .. index .. " is no node of this ring"
      end
    end
  end
  return { version = version, slots = #owners, names = names, owners = owners, members = members }
end

--- The ring after a change, or nil and the reason for which it does not apply.
-- @param runs table of { first slot, count, owner }, ascending
function M.apply(ring, from, to, names, runs)
  if from ~= ring.version then
    return nil, "a change from version " .. from .. " does not fit version " .. ring.version
  end
  local pieces, at = {}, 0
  for _, run in ipairs(runs) do
    local first, count, owner = run[1], run[2], run[3]
    if first < at or count < 1 or first + count > ring.slots or owner < 0 or owner > M.NOBODY then
      return nil, "a run of slots is out of order or beyond the table"
    end
    pieces[#pieces + 1] = sub(ring.owners, at + 1, first)
    pieces[#pieces + 1] = rep(char(owner), count)
    at = first + count
  end
  pieces[#pieces + 1] = sub(ring.owners, at + 1)
  return M.new(to, names, concat(pieces))
end

--- Number of slots by node.
function M.sizes(ring)
  local counts = {}
  for first = 1, ring.slots, CHUNK do
    for _, owner in ipairs({ byte(ring.owners, first, first + CHUNK - 1) }) do
      counts[owner] = (counts[owner] or 0) + 1
    end
  end
  local sizes = {}
  for owner, count in pairs(counts) do
    if owner ~= M.NOBODY then
      sizes[ring.names[owner + 1]] = count
    end
  end
  return sizes
end

local function integer(text)
  return math.tointeger(tonumber(text))
end

--- Parses a published change: "<from> <to> <index=name,…|-> <first:count:owner,…|-|full>".
-- @return table { from, to, names, runs }, runs nil if the table must be read instead; or nil and the error
function M.parse_change(text)
  local from, to, list, moved = text:match("^(%d+) (%d+) (%S+) (%S+)$")
  from, to = integer(from), integer(to)
  if not from or not to then
    return nil, "a change that cannot be read"
  end
  local names, most = {}, 0
  if list ~= "-" then
    for entry in list:gmatch("[^,]+") do
      local index, name = entry:match("^(%d+)=([%w._:/-]+)$")
      index = integer(index)
      if not index or index >= M.MAX_NODES then
        return nil, "a change with a bad node: " .. entry
      end
      names[index + 1] = name
      most = math.max(most, index + 1)
    end
  end
  for index = 1, most do
    names[index] = names[index] or ""
  end
  local change = { from = from, to = to, names = names }
  if moved == "full" then
    return change
  end
  change.runs = {}
  if moved ~= "-" then
    for entry in moved:gmatch("[^,]+") do
      local first, count, owner = entry:match("^(%d+):(%d+):(%d+)$")
      first, count, owner = integer(first), integer(count), integer(owner)
      if not (first and count and owner) then
        return nil, "a change with a bad run: " .. entry
      end
      change.runs[#change.runs + 1] = { first, count, owner }
    end
  end
  return change
end

--- The owner of a hash as an index from 0, or nil.
function M.owner(ring, hash)
  local owner = byte(ring.owners, ((hash * ring.slots) >> 32) + 1)
  if owner ~= 255 then
    return owner
  end
end

--- The first node that `takes(index)` accepts: the owner, then owners of re-hashed slots, each once.
-- @return index from 0, or nil
function M.choose(ring, hash, takes)
  local owner = M.owner(ring, hash)
  if not owner then
    return nil
  end
  if takes(owner) then
    return owner
  end
  local seen, left = { [owner] = true }, ring.members - 1
  for probe = 1, PROBES - 1 do
    if left == 0 then
      return nil
    end
    local other = M.owner(ring, M.probe_hash(hash, probe))
    if other and not seen[other] then
      seen[other], left = true, left - 1
      if takes(other) then
        return other
      end
    end
  end
end

return M
