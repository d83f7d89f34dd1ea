-- KEYS[i]: one hash per scope (all share one {hash tag}). ARGV[1]: server time override in us ("0" = TIME).
-- ARGV[2]: msgpack list of ops, in order: {"a", id, tokens, slot_ttl_s, {{key_index, rpm, tpm, parallel}, ...}}
--                                     or  {"s", id, tokens_delta, bucket, {{key_index}, ...}}      limits: -1 = none
-- Reply: msgpack list, one per op: {1, bucket, requests_left, tokens_left} | {0, key_index, kind, retry_after_ms, requests_left, tokens_left} | {1}
-- requests_left, tokens_left: the least of any scope, -1 = none limits them. retry_after_ms: -1 = larger than the limit itself.
-- The same rule in Python is `Memory` in limits.py; a property test holds both against each other.
local now = tonumber(ARGV[1])
if now == 0 then local t = redis.call('TIME'); now = t[1] * 1000000 + t[2] end
local B, N = 10000000, 6
local cur = math.floor(now / B)
local S = {}
local function load(i)
  if S[i] then return S[i] end
  local s = {r = {}, t = {}, rs = 0, ts = 0, dirty = {}}
  local h = redis.call('HGETALL', KEYS[i])
  for j = 1, #h, 2 do
    local k, b, v = h[j]:sub(1, 1), tonumber(h[j]:sub(2)), tonumber(h[j + 1])
    if b < cur - N then redis.call('HDEL', KEYS[i], h[j])
    else s[k][b] = v; s[k .. 's'] = s[k .. 's'] + v end
  end
  S[i] = s; return s
end
local function put(s, k, b, d)
  local old = s[k][b] or 0
  local new = math.max(0, old + d)
  s[k][b] = new; s[k .. 's'] = s[k .. 's'] + new - old; s.dirty[k .. b] = new
end
local function wait_ms(s, k, excess)      -- when enough old buckets have left the window
  for b = cur - N, cur do
    excess = excess - (s[k][b] or 0)
    if excess <= 0 then return math.min(60000, math.ceil(((b + N + 1) * B - now) / 1000)) end
  end
  return 60000
end
local function slots(i, s)
  if not s.p then redis.call('ZREMRANGEBYSCORE', KEYS[i] .. ':p', '-inf', now); s.p = redis.call('ZCARD', KEYS[i] .. ':p') end
  return s.p
end
local out = {}
for n, op in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id, tokens, scopes = op[2], op[3], op[5]
  if op[1] == 's' then
    for _, x in ipairs(scopes) do
      local s = load(x[1])
      if redis.call('ZREM', KEYS[x[1]] .. ':p', id) == 1 then      -- first settle only
        if s.p then s.p = s.p - 1 end
        if op[4] >= cur - N then put(s, 't', op[4], tokens) end
      end
    end
    out[n] = {1}
  else
    local bad, kind, wait, rl, tl = 0, '', 0, nil, nil
    for _, x in ipairs(scopes) do                                   -- check all, take none
      local i, rpm, tpm, par = x[1], x[2], x[3], x[4]
      local s = load(i)
      if rpm >= 0 and s.rs + 1 > rpm then
        local w = rpm == 0 and -1 or wait_ms(s, 'r', s.rs + 1 - rpm)
        if bad == 0 or w == -1 or (wait >= 0 and w > wait) then bad, kind, wait = i, 'requests', w end
      end
      if tpm >= 0 and s.ts + tokens > tpm then
        local w = tokens > tpm and -1 or wait_ms(s, 't', s.ts + tokens - tpm)
        if bad == 0 or w == -1 or (wait >= 0 and w > wait) then bad, kind, wait = i, 'tokens', w end
      end
      if par >= 0 and slots(i, s) >= par and bad == 0 then bad, kind, wait = i, 'parallel', 1000 end
      if rpm >= 0 and (rl == nil or rpm - s.rs < rl) then rl = rpm - s.rs end
      if tpm >= 0 and (tl == nil or tpm - s.ts < tl) then tl = tpm - s.ts end
    end
    if bad > 0 then out[n] = {0, bad, kind, wait, rl and math.max(0, rl) or -1, tl and math.max(0, tl) or -1}
    else
      for _, x in ipairs(scopes) do
        local s = load(x[1])
        put(s, 'r', cur, 1); put(s, 't', cur, tokens)
        redis.call('ZADD', KEYS[x[1]] .. ':p', string.format('%.0f', now + op[4] * 1000000), id)
        s.ttl = math.max(s.ttl or 0, op[4]); if s.p then s.p = s.p + 1 end
      end
      out[n] = {1, cur, rl and rl - 1 or -1, tl and tl - tokens or -1}
    end
  end
end
for i, s in pairs(S) do
  local a = {}
  for f, v in pairs(s.dirty) do a[#a + 1] = f; a[#a + 1] = string.format('%.0f', v) end
  if #a > 0 then redis.call('HSET', KEYS[i], unpack(a)); redis.call('PEXPIRE', KEYS[i], 75000) end
  -- never shorten it: a longer request's slot lives in the same set
  if s.ttl and redis.call('TTL', KEYS[i] .. ':p') < s.ttl + 1 then redis.call('EXPIRE', KEYS[i] .. ':p', s.ttl + 1) end
end
return cmsgpack.pack(out)
