--- Classes of requests, 0 to 3: when a node is full, the lower ones (of higher number) are refused first.
-- agent/core/src/dispatch/class.rs is the same in Rust, and has the reasons.

local max, min = math.max, math.min

local M = {}

M.LOWEST = 3

-- Fraction of the higher classes' cost that may be refused while lower ones are admitted.
local REFUSED_PART = 0.0025
-- Part of a reserve that is left after a period in which nobody needed it.
local KEPT_PART = 0.7
-- Reserve, as a multiple of the least cost, below which it is 0.
local MIN_RESERVE = 0.01

-- A large reserve changes in larger steps, so that it does not outlive a burst by long.
local function step(reserve, cost)
  return max(cost, 0.5 * reserve)
end

--- @param nodes table by place, with `open`
-- @param room table by place: a node's maximum cost in flight
-- @return table reserves: by class, from 1, and place the room left free for higher classes, in items; and functions:
--   admitted (place, class, cost) after that node was asked first; refused (place, class, cost, open) likewise, or by
--   all `open` nodes if no place is given; overdrawn () where a request of the highest class found every share full;
--   end_period (place, least_cost); figures (list) appends the number of requests admitted, by class, and refused
function M.new(nodes, room)
  local reserves, highest_needed = {}, {}
  local admitted_of, refused_of = {}, {}
  for class = 0, M.LOWEST do
    admitted_of[class], refused_of[class] = 0, 0
  end
  for class = 1, M.LOWEST do
    reserves[class] = {}
    for place = 1, #nodes do
      reserves[class][place] = 0
    end
  end

  local function needed(place, class)
    highest_needed[place] = min(highest_needed[place] or class, class)
  end

  local function admitted(place, class, cost)
    admitted_of[class] = admitted_of[class] + 1
    -- The highest class has an overdraft, and needs a reserve only while it uses that.
    if class > 0 then
      needed(place, class)
    end
    local higher = class > 0 and reserves[class][place] or 0
    for lower = class + 1, M.LOWEST do
      local reserve = reserves[lower][place]
      -- A class leaves at least as much free as the one above it.
      higher = max(reserve - REFUSED_PART * step(reserve, cost), higher)
      reserves[lower][place] = higher
    end
  end

  local function raise(place, class, cost, part)
    needed(place, class)
    for lower = class + 1, M.LOWEST do
      local reserve = reserves[lower][place]
      reserves[lower][place] = min(reserve + (1 - REFUSED_PART) * part * step(reserve, cost), max(room[place], cost))
    end
  end

  local function refused(place, class, cost, open)
    refused_of[class] = refused_of[class] + 1
    if place then
      return raise(place, class, cost, 1)
    end
    for other, node in ipairs(nodes) do
      if node.open then
        raise(other, class, cost, 1 / open)
      end
    end
  end

  local function overdrawn()
    for place = 1, #nodes do
      needed(place, 0)
    end
  end

  local function end_period(place, least_cost)
    for class = 1, min(highest_needed[place] or M.LOWEST, M.LOWEST) do
      local reserve = KEPT_PART * reserves[class][place]
      reserves[class][place] = reserve < MIN_RESERVE * least_cost and 0 or reserve
    end
    highest_needed[place] = nil
  end

  local function figures(list)
    for _, counts in ipairs({ admitted_of, refused_of }) do
      table.move(counts, 0, M.LOWEST, #list + 1, list)
    end
  end

  return {
    reserves = reserves, admitted = admitted, refused = refused, overdrawn = overdrawn, end_period = end_period,
    figures = figures,
  }
end

return M
