--- Atomic changes.

local gsub = string.gsub

--- Runs `change` atomically. HAProxy interrupts tasks after 10,000 instructions, but not within a callback of the
-- string library.
return function(change)
  gsub("-", "-", function()
    change()
  end)
end
