"""Fetches URLs one after the other, each library used as its first page of documentation shows it: whatever it needs to
find the proxy and the CA comes from the environment. Writes {"url", "status", "headers", "body"} or {"url", "error"}."""
import json
import sys


def with_urllib(url):
    import urllib.error
    import urllib.request
    try:
        r = urllib.request.urlopen(url)
    except urllib.error.HTTPError as e:
        r = e
    return r.status, r.headers, r.read().decode()


def with_requests(url):
    import requests
    r = requests.get(url)
    return r.status_code, r.headers, r.text


def with_httpx(url):
    import httpx
    r = httpx.get(url, timeout=60)
    return r.status_code, r.headers, r.text


def with_aiohttp(url):
    import asyncio

    import aiohttp

    async def get():
        async with aiohttp.ClientSession(trust_env=True) as s:
            async with s.get(url) as r:
                return r.status, r.headers, await r.text()
    return asyncio.run(get())


get = {"urllib": with_urllib, "requests": with_requests, "httpx": with_httpx, "aiohttp": with_aiohttp}[sys.argv[1]]
for url in sys.argv[2:]:
    out = {"url": url}
    try:
        status, headers, body = get(url)
        out.update(status=status, headers={k.lower(): v for k, v in headers.items()}, body=body)
    except Exception as e:
        out["error"] = f"{type(e).__name__}: {e}"
    print(json.dumps(out), flush=True)
