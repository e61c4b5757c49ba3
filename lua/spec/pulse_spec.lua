package.path = "lua/?.lua;" .. package.path

local pulse_of = require("plimsoll.pulse")

local LEASE = 3

-- A process, with HAProxy's clock and the machine's.
local function process(runs_on, at, lease)
  local self = { now = 100, real = at or 5000.3 }
  local pulse = pulse_of.new(lease or LEASE)
  self.pulse = pulse

  function self.beat()
    return pulse:beat(self.now, self.real // 1)
  end

  function self.granted()
    pulse:granted(self.real // 1)
  end

  -- Runs for a time, with a beat each 0.1 s; how many lapses were noticed.
  function self.run(seconds)
    local noticed = 0
    for _ = 1, seconds * 10 + 0.5 do
      self.now, self.real = self.now + 0.1, self.real + 0.1
      noticed = noticed + (self.beat() and 1 or 0)
    end
    return noticed
  end

  function self.stop(seconds)
    self.now, self.real = self.now + (runs_on and seconds or 0), self.real + seconds
  end

  -- Whether a request that comes now has a lapse noticed.
  function self.request()
    return pulse:is_late(self.real // 1) and self.beat() ~= nil
  end

  return self
end

for name, runs_on in pairs({ ["stands still"] = false, ["runs on"] = true }) do
  describe("the pulse, where HAProxy's clock " .. name .. " while the process is stopped", function()
    it("notices a stop soon after the start", function()
      for tenth = 0, 9 do
        local it = process(runs_on, 5000 + tenth / 10)
        it.run(0.2)
        it.granted()
        it.stop(3)
        assert.is_true(it.request())
      end
    end)

    it("notices in the first request a stop in which the lease may have ended", function()
      for tenth = 0, 9 do
        local it = process(runs_on)
        assert.equal(0, it.run(2 + tenth / 10))
        it.granted()
        assert.equal(0, it.run(1))
        local before = it.now
        it.stop(2)
        assert.equal(before, it.pulse.beat_at)
        assert.is_true(it.request())
        assert.is_true(it.pulse.has_lapsed)
        assert.is_false(it.request())
        it.granted()
        assert.is_false(it.pulse.has_lapsed)
        assert.equal(0, it.run(2))
      end
    end)

    it("tells when the process ran last", function()
      local it = process(runs_on)
      it.run(2)
      it.granted()
      local before = it.now
      it.stop(10)
      assert.equal(before, it.beat())
      assert.equal(1, it.pulse.lapses)
    end)

    it("finds nothing while the process runs, however long Redis is silent", function()
      local it = process(runs_on)
      it.run(2)
      it.granted()
      for _ = 1, 600 do
        assert.is_false(it.request())
        assert.equal(0, it.run(0.1))
      end
    end)

    it("finds nothing in a stop that is shorter than what is left of the lease", function()
      local it = process(runs_on)
      it.run(2)
      it.granted()
      it.stop(1.6)
      assert.is_false(it.request())
      assert.equal(0, it.run(0.1))
      -- Until it has been granted shares again.
      it.granted()
      assert.equal(0, it.run(2))
    end)
  end)
end

describe("the pulse", function()
  it("finds nothing before there are shares", function()
    local it = process(false)
    it.run(1)
    it.stop(60)
    assert.is_false(it.request())
  end)

  it("finds nothing after the start, when HAProxy's clock is the machine's", function()
    for tenth = 0, 9 do
      local it = process(false, 5000 + tenth / 10, 0.2)
      it.now = it.real
      for _ = 1, 30 do
        assert.equal(0, it.run(0.1))
        it.granted()
      end
    end
  end)

  it("notices a stop in which the machine's clock was set back", function()
    local it = process(false)
    it.run(2)
    it.granted()
    it.stop(5)
    it.real = it.real - 3600
    assert.is_true(it.request())
  end)

  it("goes on when the machine's clock is set", function()
    local it = process(false)
    it.run(2)
    it.granted()
    for _, seconds in ipairs({ -3600, 3600, -1 }) do
      -- It looks like a stop, once.
      it.real = it.real + seconds
      assert.is_true(it.request())
      it.granted()
      assert.equal(0, it.run(1))
      it.granted()
    end
    it.stop(4)
    assert.is_true(it.request())
  end)
end)
