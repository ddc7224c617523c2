-- What wrk sends: a claim of a random key (also to the empty handler), a claim and then its done, or a claim of a key
-- that is done. Arguments: the mode, and how many keys are done.
local threads = 0
function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

local mode, known, waiting = "claims", 1, {}
local headers = {["authorization"] = "Bearer benchmark-token-0123456789", ["content-type"] = "application/json"}

local function claim(key)
  return wrk.format("POST", "/v1/claims", headers,
    '{"automation":"bench","idempotency_key":"form_contact:' .. key .. '","run_url":"https://zap.example.com/runs/1"}')
end

function init(args)
  mode, known = args[1], tonumber(args[2])
  local seed, random = 0, io.open("/dev/urandom", "rb")
  for byte in random:read(6):gmatch(".") do seed = seed * 256 + byte:byte() end
  random:close()
  math.randomseed(seed + number)
  -- Only a cycle needs the answers; reading them costs what the others must not pay.
  if mode ~= "cycles" then response = nil end
end

function request()
  if mode == "duplicates" then return claim(string.format("%032x", math.random(0, known - 1))) end
  local done = table.remove(waiting)
  if done then return wrk.format("POST", done, headers, "{}") end
  local part = function() return math.random(0, 2147483647) end
  return claim(string.format("%08x%08x%08x%08x", part(), part(), part(), part()))
end

function response(status, _, body)
  local done = body:match('"done_url":"http://[^/]+(/[^"]+)"')
  if done then waiting[#waiting + 1] = done end
end

function done(summary, latency, _)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  print(string.format("measured %d %d %d %d %d", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), failed))
end
