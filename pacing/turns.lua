-- One key's turn, shared by several instances (pacing.md section 10). Every call names the operation, the settings and
-- what it is about; times are microseconds of the server's clock, so that no two instances need to agree on theirs.
-- Only starts and lengths are stored: when the clock goes back, a start in the future counts as now, and a jump costs
-- at most one full length.
--
-- KEYS[1] the key's state; KEYS[2] marks the data as the one we know; ARGV[1] operation; ARGV[2] settings; ARGV[3] arguments (both JSON)
local op, cfg, r = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local NEVER = -1e15
local now = r.now -- tests only
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
if redis.call('GET', KEYS[2]) ~= cfg.epoch then return redis.error_reply('EPOCH other data') end
local raw, s = redis.pcall('GET', KEYS[1]), {}
if type(raw) == 'table' then
  if string.find(raw.err, 'WRONGTYPE', 1, true) then return redis.error_reply('FOREIGN not a string') end
  return raw
end
if raw then
  local ok, v = pcall(cmsgpack.unpack, raw)
  if not ok or type(v) ~= 'table' then return redis.error_reply('FOREIGN not a state of ours') end
  s = v
end
local function start(t) return t and math.min(t, now) or NEVER end
s.e, s.re, s.i, s.la = start(s.e), start(s.re), start(s.i), start(s.la)
s.hf, s.of = start(s.hf), start(s.of)
s.eg, s.rg, s.sl, s.dl = s.eg or 0, s.rg or 0, s.sl or 0, s.dl or 0
s.hl, s.f, s.g, s.lv, s.el = s.hl or 0, s.f or 0, s.g or 0, s.lv or 0, s.el or 0
s.op, s.ol = s.op or 0, s.ol or 0
s.n = s.n or 0
s.L, s.W, s.w, s.P = s.L or {}, s.W or {}, s.w or {}, s.P or {}
if cfg.floor > 0 and s.e < cfg.floor then s.e = cfg.floor end

local function level()
  if s.lv == 0 then return 0 end
  return math.max(0, s.lv - math.floor((now - s.la) / cfg.decay))
end
local function gap(profile, slow, delay, lv)
  local base = math.max(profile, slow, delay)
  if lv == 0 then return math.min(base, cfg.longest) end
  if profile == 0 and slow == 0 then base = math.max(base, 1000000) end
  return math.min(math.min(base, cfg.longest) * 2 ^ lv, cfg.longest)
end
local function hold() return s.hf + s.hl end
local function closed() return s.ol == 0 end
local function opened() return s.of + s.ol end
local function ended(l, at) -- a lease that leaves its gap
  if l.c == 2 then
    if l.f == 0 and at >= s.re then s.re, s.rg = at, at == s.re and math.max(s.rg, l.g) or l.g end
  elseif at >= s.e then -- two may end within one microsecond
    local g = l.g
    -- A redirect came without a gap: what the page before owed stays owed.
    if l.c == 1 or at == s.e then g = math.max(g, s.e + s.eg - at) end
    s.e, s.eg, s.el = at, g, level()
  end
end

-- leases that ran out: their request may have run until then
local live = {}
for _, l in ipairs(s.L) do
  local till = math.min(l.s, now) + l.l
  if till <= now then
    ended(l, till)
  else
    l.s = math.min(l.s, now)
    live[#live + 1] = l
  end
end
s.L = live
-- instances that wait and still live
live = {}
for _, w in ipairs(s.W) do
  if now - math.min(w.b, now) < cfg.beat then live[#live + 1] = w end
end
s.W = live

local function nextat(w)
  local g = math.max(s.eg, w.gap)
  local behind = s.re + math.max(s.rg, w.gap)
  if w.class == 2 then return math.max(s.e + math.min(math.max(g, s.sl), cfg.longest), behind) end
  return math.max(s.e + gap(g, s.sl, math.max(s.dl, w.delay), s.el), behind)
end
local function ready(w)
  if w.class == 2 and w.free == 1 then return math.max(now, hold(), cfg.floor) end
  if w.class == 1 then return math.max(now, hold(), cfg.floor, now + w.notbefore) end
  return math.max(now, hold(), now + w.notbefore, nextat(w))
end
local function parallel(w)
  local n = w.parallel
  if n <= 1 or math.max(s.dl, w.delay) > 0 or level() > 0 or not closed() then return 1 end
  for _, l in ipairs(s.L) do n = math.min(n, l.p) end
  return n
end
local function enlist(me) -- whether I am first among the instances that wait, and whether I just came
  local mine, came
  for _, w in ipairs(s.W) do if w.i == me then mine = w end end
  if not mine then
    mine, came = { i = me }, true
    s.W[#s.W + 1] = mine
  end
  -- It waits since the client at its head does: so one client among few elsewhere is let in no more often than one among many here.
  mine.q, mine.f, mine.b = r.prio, now - r.age, now
  for _, w in ipairs(s.W) do
    if w.q < mine.q or w.q == mine.q and w.f < mine.f then return false, came end
  end
  return true, came
end
local function delist(me)
  for i, w in ipairs(s.W) do
    if w.i == me then table.remove(s.W, i) return end
  end
end
local function wake(at) -- tell the others, if there are any
  local first, other
  for _, w in ipairs(s.W) do
    other = other or w.i ~= r.inst
    if not first or w.q < first.q or w.q == first.q and w.f < first.f then first = w end
  end
  if other then
    redis.call('PUBLISH', r.channel, string.format('%s %d %s', r.name, math.max(0, at - now), first.i))
  end
end

local function save()
  local till = math.max(now, hold(), opened(), s.e + gap(s.eg, s.sl, s.dl, s.el), s.re + s.rg)
  for _, l in ipairs(s.L) do
    till = math.max(till, l.s + l.l + gap(l.g, s.sl, math.max(s.dl, l.d), s.el))
  end
  if s.lv > 0 then till = math.max(till, s.la + s.lv * cfg.decay) end
  if s.i > NEVER then till = math.max(till, math.max(hold(), s.i) + math.max(cfg.forget, cfg.slow)) end
  for _, o in ipairs(s.w) do
    if o % 2 == 1 then till = math.max(till, math.floor(o / 2) + cfg.window) end
  end
  for _, p in ipairs(s.P) do till = math.max(till, p[2] + cfg.round) end
  if not closed() then till = math.max(till, opened() + cfg.opencap) end -- a half-open breaker stays so
  local out = {}
  for k, v in pairs(s) do -- what is not there costs nothing
    if type(v) == 'table' and #v > 0 or type(v) == 'number' and v ~= 0 and v ~= NEVER then out[k] = v end
  end
  redis.call('SET', KEYS[1], cmsgpack.pack(out), 'PX', string.format('%d', math.ceil((till - now) / 1000) + 60000))
end
local function reply(status, wait)
  local l = s.L[1] or { c = -1, g = 0, f = 0 }
  return { status, math.ceil(wait), now, s.e, s.eg, s.re, s.rg, s.sl, s.dl, s.hl > 0 and hold() or NEVER, s.i, s.f, s.g, s.lv, s.la, s.el,
    closed() and NEVER or opened(), s.op, #s.L, l.c, l.g, l.f, #s.P }
end
local function page(id)
  for i, p in ipairs(s.P) do
    if p[1] == id then return p, i end
  end
end

local function grown(base, factor, n, most) return math.min(most, base * factor ^ n) end
local function incident(granted)
  if granted < s.i then -- on its way when we learned
    if r.after > 0 then
      local till = now + math.ceil(r.after * (1 + r.jitter))
      if till > hold() then s.hf, s.hl = now, till - now end
    end
    return
  end
  local before = s.i > NEVER
  local quiet = math.max(hold(), s.i)
  if now >= quiet + cfg.forget then s.f = 0 end
  s.f = math.min(s.f + 1, 1000000)
  if before and now - quiet <= cfg.slow then
    s.lv, s.la = math.min(cfg.maxlevel, level() + 1), now
    s.el = math.max(s.el, s.lv)
  end
  s.g, s.i = 0, now
  local own = grown(cfg.base, cfg.factor, s.f - 1, cfg.cap)
  local till = now + math.ceil(math.max(own, r.after) * (1 + r.jitter))
  if till > hold() then s.hf, s.hl = now, till - now end
end
local function answered(granted)
  if granted < s.i then return end
  s.f = 0
  s.g = math.min(s.g + 1, 1000000)
  if s.g >= cfg.recover then
    local lv = level()
    if lv > 0 then s.lv, s.la, s.g = lv - 1, now, 0 end
  end
end
local function trip()
  s.of, s.ol = now, grown(cfg.openfor, cfg.openfactor, s.op, cfg.opencap)
  s.op = s.op + 1
  s.w = {}
end
local function judge(granted) -- the breaker
  local good = r.verdict == 'good'
  if not good and r.bad == 0 then return false end
  if not closed() then
    if granted < opened() then return false end
    if good then
      s.of, s.ol, s.op, s.w = NEVER, 0, 0, {}
      return false
    end
    trip()
    return true
  end
  local keep, bad = {}, 0
  for _, o in ipairs(s.w) do
    if math.floor(o / 2) >= now - cfg.window then keep[#keep + 1] = o end
  end
  while #keep >= cfg.size do table.remove(keep, 1) end
  keep[#keep + 1] = now * 2 + r.bad
  s.w = keep
  for _, o in ipairs(keep) do bad = bad + o % 2 end
  if r.bad == 1 and #keep >= cfg.min and bad >= cfg.ratio * #keep then
    trip()
    return true
  end
  return false
end
local function note() -- the page count
  if r.page == '' then return end
  local p, i = page(r.page)
  if r.verdict == 'throttle' then
    if p and now >= math.min(p[2], now) + cfg.round then
      table.remove(s.P, i)
      p = nil
    end
    if not p then
      while #s.P >= cfg.pages do table.remove(s.P, 1) end
      p = { r.page, now, 0 }
      s.P[#s.P + 1] = p
    end
    p[3] = p[3] + 1
  elseif p and (r.verdict == 'good' or r.verdict == 'redirected') then
    table.remove(s.P, i)
  end
end
local function outcome(granted)
  if r.incident == 1 then incident(granted)
  elseif r.verdict == 'good' or r.verdict == 'redirected' then answered(granted) end
  local tripped = false
  if r.wide == 0 and r.robots == 0 then
    if r.window == 1 then tripped = judge(granted) end
    note()
  end
  return tripped
end

if op == 'acquire' then
  for _, l in ipairs(s.L) do -- asked before, but the answer was lost: the same lease, from now
    if string.sub(l.t, 1, #r.token + 1) == r.token .. ':' then
      l.s, l.l = now, cfg.ttl
      save()
      return reply(1, tonumber(string.sub(l.t, #r.token + 2)))
    end
  end
  if r.wide == 0 then
    s.dl = math.max(s.dl, r.delay)
    s.sl = r.slow
  end
  if not closed() and now < opened() then return reply(3, opened() - now) end
  local p = page(r.page)
  if p and r.class ~= 2 then
    local till = math.min(p[2], now) + cfg.round
    if now < till and p[3] > cfg.retries then return reply(4, till - now) end
  end
  if r.class == 3 or r.rides == 1 and s.dl == 0 and closed() then -- a rider: no turn, but the hold
    if hold() > now then return reply(5, hold() - now) end
    return reply(2, 0)
  end
  local at, first, came = ready(r), enlist(r.inst)
  if #s.L < parallel(r) and at <= now and first then
    delist(r.inst)
    s.n = s.n + 1
    s.L[#s.L + 1] = { t = r.token .. ':' .. string.format('%d', s.n), i = r.inst, s = now, l = cfg.ttl, c = r.class, g = r.gap, d = r.delay,
      f = r.free, p = r.parallel, a = now }
    save()
    return reply(1, s.n)
  end
  save()
  if #s.L >= parallel(r) then
    local till = s.L[1].s + s.L[1].l
    for _, l in ipairs(s.L) do till = math.min(till, l.s + l.l) end
    return reply(6, till - now) -- held
  end
  if first and came and at > now then wake(at) end -- who was told to be the next is not
  return reply(0, at - now + (first and 0 or cfg.poll)) -- who is not first would only be told to wait
elseif op == 'renew' then
  for _, l in ipairs(s.L) do
    if l.t == r.token then
      l.s, l.l = now, cfg.ttl
      save()
      return reply(1, 0)
    end
  end
  if r.again == 1 and #s.L == 0 then -- the server changed and lost it
    s.L[1] = { t = r.token, i = r.inst, s = now, l = cfg.ttl, c = r.class, g = r.gap, d = r.delay, f = r.free, p = 1, a = now }
    save()
    return reply(1, 0)
  end
  return reply(7, 0)
elseif op == 'done' then
  local granted = r.granted
  if r.token ~= '' then
    local lease
    for i, l in ipairs(s.L) do
      if l.t == r.token then lease = table.remove(s.L, i) break end
    end
    if not lease then -- lost, and its exchange went on until now, as that of a process that was stopped
      if r.verdict ~= 'not_sent' then
        ended({ c = r.class, g = r.gap, f = r.free }, now)
        save()
      end
      return reply(7, 0)
    end
    granted = lease.a
    local tripped = false
    if r.verdict ~= 'not_sent' then
      tripped = outcome(granted)
      ended(lease, now)
      if lease.c ~= 2 then
        local d = lease.d
        if r.wide == 0 then
          d = math.max(d, r.waiting)
          for _, l in ipairs(s.L) do d = math.max(d, l.d) end
          d = math.min(d, s.dl)
        end
        s.dl = d
      end
    end
    save()
    wake(math.max(hold(), s.e + gap(s.eg, s.sl, s.dl, s.el)))
    return reply(tripped and 3 or 1, 0)
  end
  local held, tripped = hold(), outcome(granted) -- a rider
  save()
  if hold() > held then wake(now) end
  return reply(tripped and 3 or 1, 0)
elseif op == 'observe' then
  incident(now < hold() and s.i - 1 or now)
  save()
  wake(now)
  return reply(1, 0)
elseif op == 'resume' then
  if raw then
    s.hf, s.hl, s.i, s.la, s.f, s.g, s.lv = NEVER, 0, NEVER, NEVER, 0, 0, 0
    s.of, s.ol, s.op, s.w, s.P = NEVER, 0, 0, {}, {}
    save()
    wake(now)
  end
  return reply(1, 0)
elseif op == 'rules' then -- robots.txt or the ledger changed
  if raw then
    if r.delay >= 0 then
      s.dl = r.delay
      for _, l in ipairs(s.L) do l.d = r.delay end
    end
    if r.slow >= 0 then s.sl = r.slow end
    save()
    wake(now)
  end
  return reply(1, 0)
elseif op == 'leave' then
  delist(r.inst)
  if raw then
    save()
    wake(now)
  end
  return reply(1, 0)
elseif op == 'merge' then -- what was owed while the store was away: the later of both
  local ago = function(t) return t < 0 and NEVER or now - t end
  if ago(r.e) > s.e then s.e, s.eg, s.el = ago(r.e), r.eg, math.max(s.el, r.el) end
  if ago(r.re) > s.re then s.re, s.rg = ago(r.re), r.rg end
  if now + r.hold > hold() then s.hf, s.hl = now, r.hold end
  s.i = math.max(s.i, ago(r.i))
  s.f = math.max(s.f, r.f)
  s.dl = math.max(s.dl, r.dl)
  if r.lv > level() then s.lv, s.la = r.lv, now end
  if r.open > 0 and now + r.open > opened() then s.of, s.ol, s.op = now, r.open, math.max(s.op, r.op) end
  if r.token ~= '' then
    s.L[#s.L + 1] = { t = r.token, i = r.inst, s = now, l = cfg.ttl, c = r.class, g = r.gap, d = r.delay, f = r.free, p = 1, a = now }
  end
  save()
  return reply(1, 0)
end
if not closed() and now < opened() then return reply(3, opened() - now) end -- look
local seen = page(r.page)
if seen then
  local till = math.min(seen[2], now) + cfg.round
  if now < till and seen[3] > cfg.retries then return reply(4, till - now) end
end
return reply(1, 0)
