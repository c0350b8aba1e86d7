# make test   everything the tests need is installed when it is missing and we are root, then all tests run
# make lint   formatting, vet, staticcheck, tidiness
# make bench  benchmarks (figures compare only within one run)

GO          ?= go
TOOLS       := $(CURDIR)/.cache/bin
STATICCHECK := $(TOOLS)/staticcheck
STATICCHECK_VERSION := v0.8.2
TESTFLAGS   ?= -race -timeout 15m

# program:package, as Debian names them
NEEDS := redis-server:redis-server chromium:chromium curl:curl python3:python3 node:nodejs npm:npm openssl:openssl

.PHONY: all build test lint bench fuzz tools deps tidy-check

all: build

build:
	$(GO) build -o crawlgate ./cmd/crawlgate

deps:
	@missing=""; for n in $(NEEDS); do command -v $${n%%:*} >/dev/null 2>&1 || missing="$$missing $${n##*:}"; done; \
	/usr/bin/python3 -c 'import requests' 2>/dev/null || missing="$$missing python3-requests"; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing$$missing"; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
		else echo "the tests need:$$missing (install them, or run this as root on Debian)"; exit 1; fi; \
	fi
	@for d in sign/testdata/node cmd/crawlgate/testdata/node; do \
		if [ -f $$d/package.json ] && [ ! -d $$d/node_modules ]; then (cd $$d && npm install --no-audit --no-fund --no-package-lock --silent) || exit 1; fi; \
	done

test: deps
	$(GO) test $(TESTFLAGS) ./...

lint: $(STATICCHECK)
	@out="$$(gofmt -l $$(git ls-files '*.go'))"; if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...
	@$(GO) mod tidy -diff

$(STATICCHECK):
	GOBIN=$(TOOLS) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...
