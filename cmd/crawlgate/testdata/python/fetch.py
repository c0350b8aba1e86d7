"""Fetches URLs one after the other with urllib, requests or httpx, by way of the proxy that the environment names, and
writes {"url", "status", "headers", "body"} or {"url", "error"} for each."""
import json
import os
import sys


def with_urllib(url):
    import urllib.error
    import urllib.request
    try:
        r = urllib.request.urlopen(url, timeout=60)
    except urllib.error.HTTPError as e:
        r = e
    return r.status, dict(r.headers.items()), r.read().decode()


def with_requests(url, session=[]):
    import requests
    if not session:
        session.append(requests.Session())
    r = session[0].get(url, timeout=60, allow_redirects=False)
    return r.status_code, dict(r.headers.items()), r.text


def with_httpx(url, client=[]):
    import ssl

    import httpx
    if not client:
        client.append(httpx.Client(verify=ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"]), timeout=60))
    r = client[0].get(url)
    return r.status_code, dict(r.headers.items()), r.text


get = {"urllib": with_urllib, "requests": with_requests, "httpx": with_httpx}[sys.argv[1]]
for url in sys.argv[2:]:
    out = {"url": url}
    try:
        status, headers, body = get(url)
        out.update(status=status, headers={k.lower(): v for k, v in headers.items()}, body=body)
    except Exception as e:
        out["error"] = f"{type(e).__name__}: {e}"
    print(json.dumps(out), flush=True)
