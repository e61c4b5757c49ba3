--- Tickets of this thread's requests.
--
-- A ticket's holder is an object that lives as long as the request, a HAProxy stream's coroutine: if it is collected
-- before the request was ended, the request ended without a response.

local M = {}

--- @param follower of agent/core's placement
function M.new(follower)
  local self = {}
  -- Slots, so that no table is built per request: a ticket, or false if free. Holders are weak keys.
  local ticket_of, free, free_count = {}, {}, 0
  local slot_of = setmetatable({}, { __mode = "k" })

  local function release(slot)
    local ticket = ticket_of[slot]
    ticket_of[slot] = false
    free_count = free_count + 1
    free[free_count] = slot
    return ticket
  end

  --- Stores the ticket of an admitted request.
  function self.hold(holder, ticket)
    local slot
    if free_count > 0 then
      slot = free[free_count]
      free_count = free_count - 1
    else
      slot = #ticket_of + 1
    end
    ticket_of[slot] = ticket
    slot_of[holder] = slot
  end

  --- Ends a request.
  -- @param is_through boolean whether the node has answered, or was never reached
  function self.ended(holder, now, is_through)
    local slot = slot_of[holder]
    if not slot then
      return
    end
    slot_of[holder] = nil
    local ticket = release(slot)
    if is_through then
      follower.answered(ticket)
    else
      follower.unanswered(ticket, now)
    end
  end

  --- Ends the requests whose holders were collected. Must not be interrupted. Returns whether any request is left.
  function self.collect(now)
    local held, busy = {}, false
    for _, slot in pairs(slot_of) do
      held[slot], busy = true, true
    end
    for slot, ticket in ipairs(ticket_of) do
      if ticket and not held[slot] then
        follower.unanswered(release(slot), now)
      end
    end
    return busy
  end

  return self
end

return M
