"""A spider that knows nothing of any proxy; it fetches the URLs in the file "urls" and writes what it got."""
import json

import scrapy


class Spider(scrapy.Spider):
    name = "recipe"
    handle_httpstatus_all = True

    def start_requests(self):
        with open("urls") as f:
            for url in f.read().split():
                yield scrapy.Request(url, meta={"handle_httpstatus_all": True}, errback=self.failed)

    def parse(self, r):
        headers = {k.decode().lower(): v[0].decode() for k, v in r.headers.items()}
        print(json.dumps({"url": r.url, "status": r.status, "headers": headers, "body": r.text}), flush=True)

    def failed(self, failure):
        print(json.dumps({"url": failure.request.url, "error": repr(failure.value)}), flush=True)
