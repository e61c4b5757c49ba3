--- Choice of a node by its room.

local max = math.max

--- @param nodes table by place, with `open`; in_flight, room, requests likewise: cost in flight, its maximum (none if
--   the node is not open), and requests
-- @param random function integers of 32 bits
-- @return takes function (place, cost, part): whether a node has room for a request within that part of it, or all;
--   least_filled function (cost): the place of a node with room for it, or nil
return function(nodes, in_flight, room, requests, random)
  -- A request larger than the whole room is admitted alone, or it would never run.
  local function takes(place, cost, part)
    return in_flight[place] + cost <= room[place] * (part or 1) or (requests[place] == 0 and nodes[place].open)
  end

  -- The node with the lowest backlog relative to its room, among those with room for the request. Of the cost itself a
  -- random part counts at each, at least a quarter: idle nodes of about the same room take turns, and come before busy
  -- ones. Otherwise all dispatchers would prefer the same node, which has the most room by chance.
  local function least_filled(cost)
    local best, least
    local noise = random()
    for place = 1, #nodes do
      if takes(place, cost) then
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

  return takes, least_filled
end
