--- Choice of a node by its room.

local schedule = require("plimsoll.schedule")

local max, min = math.max, math.min

-- Maximum cost in flight beyond a share, as a multiple of the cost of the highest class's request that asks for it.
local MAX_OVERDRAFT = 2

--- @param nodes table by place, with `open`; in_flight, room, requests likewise: cost in flight, its maximum (none if
--   the node is not open), and requests
-- @param random function integers of 32 bits
-- @return takes function (place, cost, reserve, part): whether a node has room for it within that part of it, or all,
--   less what its class leaves free there (by place, or nil)
-- @return least_filled function (cost, reserve): the place of a node with room for it, or nil
-- @return lender function (cost, classes): the place of a node that takes a request of the highest class beyond its
--   share, or nil
-- @return by_scheduler function (scheduler, dispatchers, cost, reserve): the place of such a node, and the first
--   candidate
return function(nodes, in_flight, room, requests, random)
  -- A request larger than the whole room is admitted alone, or it would never run, unless its class leaves free more
  -- than half of what it needs.
  local function takes(place, cost, reserve, part)
    local left = reserve and reserve[place] or 0
    return in_flight[place] + cost <= room[place] * (part or 1) - left
      or (requests[place] == 0 and nodes[place].open and left <= 0.5 * max(room[place], cost))
  end

  local function lends(place, cost)
    local own = room[place]
    return own > 0 and in_flight[place] + cost <= max(own, cost) + min(own + cost, MAX_OVERDRAFT * cost)
  end

  -- The node with the lowest backlog relative to its room, among those with room for the request. Of the cost itself a
  -- random part counts at each, at least a quarter: idle nodes of about the same room take turns, and come before busy
  -- ones. Otherwise all dispatchers would prefer the same node, which has the most room by chance.
  local function least_filled_of(has_room, cost, reserve)
    local best, least
    local noise = random()
    for place = 1, #nodes do
      if has_room(place, cost, reserve) then
        -- A linear congruential sequence (Numerical Recipes, chapter 7.1).
        noise = noise * 1664525 + 1013904223 & 0xffffffff
        local filled = (in_flight[place] + cost * (0.25 + 0.75 * noise / 4294967296)) / max(room[place], 1e-9)
        if not best or filled < least then
          best, least = place, filled
        end
      end
    end
    return best
  end

  local function least_filled(cost, reserve)
    return least_filled_of(takes, cost, reserve)
  end

  local function lender(cost, classes)
    classes.overdrawn()
    return least_filled_of(lends, cost)
  end

  local function by_scheduler(scheduler, dispatchers, cost, reserve)
    local first
    for _ = 1, 2 * #nodes do
      local place = schedule.next_among(scheduler, dispatchers, random)
      if not place then
        break
      end
      first = first or place
      if takes(place, cost, reserve) then
        return place, first
      end
    end
    local place = least_filled(cost, reserve)
    return place, first or place
  end

  return takes, least_filled, lender, by_scheduler
end
