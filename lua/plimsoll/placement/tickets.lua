--- Which request of this thread has which ticket.
--
-- The holder of one is an object that lives as long as the request, a HAProxy stream's coroutine: where it is
-- collected and nobody has said how the request ended, it ended without an answer.

local M = {}

--- @param follower of agent/core's placement
function M.new(follower)
  local self = {}
  -- Slots, so that nothing is built for a request: ticket, or false where it is free. Holders are weak keys.
  local ticket_of, free, free_count = {}, {}, 0
  local slot_of = setmetatable({}, { __mode = "k" })

  local function release(slot)
    local ticket = ticket_of[slot]
    ticket_of[slot] = false
    free_count = free_count + 1
    free[free_count] = slot
    return ticket
  end

  --- The request was let in.
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

  --- It ended.
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

  --- Ends those whose holders are gone. Must not be interrupted. Returns whether any is left.
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
