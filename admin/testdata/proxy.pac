// crawlgate: every request goes through the gate. There is no "DIRECT" on
// purpose: when the gate is away, requests must fail, not slip past it.
function FindProxyForURL(url, host) {
  return "PROXY 127.0.0.1:3128";
}
