package.path = "lua/?.lua;" .. package.path

local words = require("plimsoll.words")

describe("a request's text", function()
  for text, expected in pairs({
    ["0"] = { 0 },
    ["4294967295"] = { 0xffffffff },
    ["4294967296"] = { false },
    ["99999999999999999999"] = { false },
    ["-1"] = { false },
    ["1.5"] = { false },
    ["1e3"] = { false },
    ["0x10"] = { false },
    ["168496141 80"] = { 168496141, 80 },
    ["168496141 12.5 /quotes"] = { 168496141, 12.5, "/quotes" },
    ["168496141  /a route"] = { 168496141, nil, "/a route" },
    ["168496141 "] = { 168496141 },
    ["168496141  7"] = { 168496141, nil, "7" },
    ["168496141 80 7"] = { 168496141, 80, "7" },
    ["168496141x80"] = { false },
    ["168496141 80 "] = { 168496141, 80 },
    ["- 3"] = { nil, 3 },
    ["-"] = {},
    [""] = { false },
    ["node1"] = { false },
    ["\1\2\3\4"] = { false },
    ["168496141 ten"] = { 168496141 },
    ["168496141 nan"] = { 168496141 },
    ["168496141/2"] = { 168496141, nil, nil, 2 },
    ["168496141/ 80"] = { 168496141, 80, nil, 0 },
    ["-/1 12.5 /a/route"] = { nil, 12.5, "/a/route", 1 },
    ["-/7"] = { nil, nil, nil, 3 },
    ["-/99999999999"] = { nil, nil, nil, 3 },
    ["-/-1"] = { nil, nil, nil, 3 },
    ["-/1.5"] = { nil, nil, nil, 3 },
    ["-/high"] = { nil, nil, nil, 3 },
    ["/1"] = { false, nil, nil, 1 },
  }) do
    it(("is parsed: %q"):format(text), function()
      local hash, cost, route, class = words.request(text)
      assert.same({ expected[1], expected[2], expected[3], expected[4] }, { hash, cost, route, class })
    end)
  end
end)

describe("an answer's text", function()
  for text, expected in pairs({
    ["200 node1 80"] = { 200, "node1", 80 },
    ["200 node1 -"] = { 200, "node1" },
    ["200 node1 "] = { 200, "node1" },
    ["503 <NOSRV> -"] = { 503, "<NOSRV>" },
    ["200 node1 many words"] = { 200, "node1" },
    ["200 node1 1e9"] = { 200, "node1", 1e9 },
    ["200 node1 80 12 0.5"] = { 200, "node1", 80, 12, 0.5 },
    ["200 node1 - 12"] = { 200, "node1", nil, 12 },
    ["200 node1  12 "] = { 200, "node1", nil, 12 },
    ["200 node1 80 - 0.5 more"] = { 200, "node1", 80, nil, 0.5 },
    ["200 node1 80 1e999 -1"] = { 200, "node1", 80 },
    ["200 node1 80 nan nan"] = { 200, "node1", 80 },
    ["200 node1 1e999"] = { 200, "node1" },
    ["200 node1 1e10"] = { 200, "node1" },
    ["200 node1 -5"] = { 200, "node1" },
    ["200 node1 nan"] = { 200, "node1" },
    ["-1 node1 80"] = { -1, "node1", 80 },
    ["200"] = { 0, "" },
    [""] = { 0, "" },
  }) do
    it(("is parsed: %q"):format(text), function()
      local answers = words.answers()
      local wanted = { status = expected[1], server = expected[2], items = expected[3] }
      wanted.jobs, wanted.load = expected[4], expected[5]
      assert.same(wanted, answers:read(text))
      assert.equal(expected[2], answers[text].server)
    end)
  end

  it("is remembered for at most a thousand texts", function()
    local answers = words.answers()
    for items = 1, 2500 do
      assert.equal(items, answers:read("200 node1 " .. items).items)
    end
    local count = 0
    for _ in pairs(answers) do
      count = count + 1
    end
    assert.is_true(count <= 1001)
    assert.equal(2500, answers["200 node1 2500"].items)
  end)
end)
