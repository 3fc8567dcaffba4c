-- The requests of one run of wrk: each line of the file named by BENCH_REQUESTS is `GET path` or `POST path body`.
-- They are sent in order. POSTs are sent once; GETs begin again. What was counted is written as JSON at the end.

local requests, repeats, at = {}, true, 0

function init(_)
  for line in io.lines(os.getenv("BENCH_REQUESTS")) do
    local method, path, body = line:match("^(%u+) (%S+) ?(.*)$")
    repeats = method == "GET"
    local headers = repeats and { accept = "application/json" } or { ["content-type"] = "application/json" }
    requests[#requests + 1] = wrk.format(method, path, headers, not repeats and body or nil)
  end
end

function request()
  at = at + 1
  if repeats then return requests[(at - 1) % #requests + 1] end
  return assert(requests[at], "there are too few requests to send")
end

function done(summary, latency, _)
  local failed = summary.errors
  io.write(string.format(
    '{"requests": %d, "micros": %d, "failed": %d, "p50Micros": %d, "p99Micros": %d}\n',
    summary.requests, summary.duration,
    failed.connect + failed.read + failed.write + failed.status + failed.timeout,
    latency:percentile(50), latency:percentile(99)))
end
