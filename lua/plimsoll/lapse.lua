--- A lapse of the shares: others may have been granted them, so they are not used until the next snapshot.

local M = {}

-- Time after which lapsed shares are used again if there are no new ones, in s: Redis is unavailable then, so most
-- likely nobody else was granted them.
local MAX_LAPSE = 2

--- @param age_limit number s
-- @param set function (boolean): marks all shares as lapsed, or as in force
-- @return lapse; its `since` is when it began, if the shares have lapsed, and a snapshot sets it to nil
function M.new(age_limit, set)
  local lapse = {}

  --- Begins at `now`, unless the snapshot of `news_at` was stale at `used_at`, when the shares were last in use: stale
  -- shares were not.
  function lapse.begin(used_at, now, news_at)
    if used_at - news_at <= age_limit then
      lapse.since = lapse.since or now
      set(true)
    end
  end

  --- Ends what has lasted too long. To be called several times a second.
  function lapse.on_time(now)
    if lapse.since and now - lapse.since > MAX_LAPSE then
      lapse.since = nil
      set(false)
    end
  end

  return lapse
end

return M
