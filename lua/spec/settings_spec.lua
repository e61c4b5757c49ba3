package.path = "lua/?.lua;" .. package.path

local settings_of = require("plimsoll.settings")

local function with(changes)
  local settings = { cluster = "c", backend = "b", redis = { addresses = { "127.0.0.1:6379" } } }
  for key, value in pairs(changes) do
    settings[key] = value
  end
  return settings
end

describe("settings", function()
  it("have defaults", function()
    local settings = assert(settings_of.resolve(with({})))
    assert.equal("fc_hash", settings.policy)
    assert.equal(1, settings.period)
    assert.equal(1, settings.redis.timeout)
    assert.equal(1000, settings.cost.routes)
  end)

  it("hide secret values in errors", function()
    local addresses = { "127.0.0.1:6379" }
    for _, secret in ipairs({ 271828, true }) do
      local _, of_redis = settings_of.resolve(with({ redis = { addresses = addresses, password = secret } }))
      local updates = { agents = addresses, forward = addresses[1], token = secret }
      local _, of_updates = settings_of.resolve_updates(updates)
      local told = ("%s; %s"):format(of_redis, of_updates)
      assert.is_nil(told:find(tostring(secret), 1, true), told)
      assert.is_truthy(told:find("redis.password: .*; token: "), told)
    end
  end)

  it("may have placement only, in the same cluster", function()
    local placed = { cluster = "c", redis = { addresses = { "127.0.0.1:6379" } }, placement = { backend = "t" } }
    local settings = assert(settings_of.resolve(placed))
    assert.same({ cluster = "c", backend = "t", wait = 0.5 }, settings.placement)
    assert.is_nil(settings.backend)
    assert.is_nil(assert(settings_of.resolve(with({}))).placement)
  end)

  local wrong = {
    { with({ placement = {} }), "placement.backend: is missing" },
    { with({ placement = { backend = "t", wait = 31 } }), "placement.wait: must be a number within 0..30 s" },
    { with({ placement = { backend = "t", waits = 1 } }), "placement.waits: unknown key" },
    { with({ polcy = "fc_hash" }), "polcy: unknown key" },
    { with({ policy = "fastest" }), "policy: must be one of" },
    { with({ cluster = "a b" }), "cluster: must be 1..120" },
    { with({ proxy = ("x"):rep(101) }), "proxy: must be 1..100" },
    { with({ redis = { addresses = { "127.0.0.1:1" }, user = "proxy" } }), "redis.user: needs redis.password" },
    { with({ period = 0 }), "period: must be a number" },
    { with({ period = 0 / 0 }), "period: must be a number" },
    { with({ period = "1s" }), "period: must be a number" },
    { with({ period = 2, lease = 3 }), "lease: must be at least two periods" },
    { with({ redis = { addresses = {} } }), "redis.addresses: must be a list" },
    { with({ redis = { addresses = { "redis.example:6379" } } }), "redis.addresses: must be a list" },
    { with({ redis = { addresses = { "127.0.0.1:99999" } } }), "redis.addresses: must be a list" },
    { with({ redis = {} }), "redis.addresses: is missing" },
    { with({ news = { update = "periodic" } }), "news: only the schedulers look at load; policy fc_hash does not" },
    { with({ policy = "job_informed", news = { update = "daily" } }), "news.update: must be one of periodic, cont" },
    { with({ policy = "job_informed", news = { phase = -1 } }), "news.phase: must be a number within 0..3600 s" },
    { with({ policy = "job_informed", news = { phases = 1 } }), "news.phases: unknown key" },
    { with({ cost = 80 }), "cost: must be a table" },
    { { cluster = "c", redis = { addresses = { "127.0.0.1:1" } } }, "backend: is missing" },
    { "text", "must be a table" },
  }
  for number, case in ipairs(wrong) do
    it("name the invalid key, case " .. number, function()
      local settings, problem = settings_of.resolve(case[1])
      assert.is_nil(settings)
      assert.is_truthy(problem:find(case[2], 1, true), problem)
    end)
  end
end)
