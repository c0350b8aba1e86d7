-- One step on one job. KEYS: the job, the index of all jobs. ARGV: what to do, its arguments.
-- A job is a hash that ends with its life; one that was ended early leaves `ended` behind, so that an instance which still
-- remembers it does not bring it back. One that is simply gone was lost by the server: then what the instance remembers counts.
local op, a = ARGV[1], cjson.decode(ARGV[2])
local job, index = KEYS[1], KEYS[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function num(field) return tonumber(redis.call('HGET', job, field) or 0) end

local function create(j, began)
  if began == 0 then began = now end
  redis.call('DEL', job)
  redis.call('HSET', job, 'client', j.client, 'id', j.id, 'profile', j.profile, 'site', j.site, 'first', j.first or '',
    'pages', j.pages, 'max', j.max_pages, 'began', began)
end

local function touch()
  redis.call('HSET', job, 'last', now)
  redis.call('PEXPIRE', job, a.life)
  redis.call('ZREMRANGEBYSCORE', index, '-inf', now)
  redis.call('ZADD', index, now + a.life, a.name)
  redis.call('PEXPIRE', index, a.life)
end

local gone = redis.call('EXISTS', job) == 0
local there = not gone and not redis.call('HGET', job, 'ended')

if op == 'charge' then
  if gone and a.known then
    create(a.known, a.known_began)
  elseif not there then
    create(a.fresh, now)
  end
  touch()
  local max, pages = num('max'), num('pages')
  if a.limit > 0 and (max == 0 or a.limit < max) then
    max = a.limit
    redis.call('HSET', job, 'max', max)
  end
  local code = ''
  if a.same_site and redis.call('HGET', job, 'site') ~= a.fresh.site then
    code = 'job-off-site'
  elseif a.page and max > 0 and pages >= max then
    code = 'job-exhausted'
    redis.call('HSET', job, 'stopped', code)
  elseif a.page then
    redis.call('HINCRBY', job, 'pages', 1)
  end
  if code ~= '' then redis.call('HINCRBY', job, 'refused:' .. code, 1) end
  return { code, redis.call('HGETALL', job) }
elseif op == 'settle' then
  if gone and a.known then
    create(a.known, a.known_began)
    touch()
  elseif there and (a.known_began == 0 or num('began') == a.known_began) then
    if a.pages ~= 0 then redis.call('HSET', job, 'pages', math.max(0, num('pages') + a.pages)) end
    if a.refused ~= '' then redis.call('HINCRBY', job, 'refused:' .. a.refused, 1) end
  end
  return { '', {} }
elseif op == 'end' then
  if not there then return { '', {} } end
  redis.call('DEL', job)
  redis.call('HSET', job, 'ended', 1)
  redis.call('PEXPIRE', job, a.life)
  redis.call('ZREM', index, a.name)
  return { 'ended', {} }
elseif op == 'limit' then
  if not there then return { '', {} } end
  local max = num('max')
  if max == 0 or a.pages <= max then
    redis.call('HSET', job, 'max', a.pages)
    max = a.pages
  end
  return { 'found', { 'max', max } }
end
return redis.error_reply('unknown step ' .. op)
