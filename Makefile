# make test   everything the tests need is installed when it is missing and we are root, then all tests run
# make lint   formatting, vet, staticcheck, tidiness
# make bench  benchmarks (figures compare only within one run)

GO          ?= go
TOOLS       := $(CURDIR)/.cache/bin
STATICCHECK := $(TOOLS)/staticcheck
STATICCHECK_VERSION := v0.8.2
TESTFLAGS   ?= -race -timeout 15m

# program:package, as Debian names them
NEEDS := redis-server:redis-server chromium:chromium chromedriver:chromium-driver firefox-esr:firefox-esr certutil:libnss3-tools curl:curl wget:wget python3:python3 scrapy:python3-scrapy \
	node:nodejs npm:npm javac:default-jdk-headless keytool:default-jdk-headless openssl:openssl
# modules of Debian's own Python
MODULES := requests httpx aiohttp selenium

.PHONY: all build test lint bench fuzz tools deps tidy-check

all: build

build:
	$(GO) build -o crawlgate ./cmd/crawlgate

deps:
	@missing=""; for n in $(NEEDS); do command -v $${n%%:*} >/dev/null 2>&1 || missing="$$missing $${n##*:}"; done; \
	for m in $(MODULES); do /usr/bin/python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$$m') is None)" 2>/dev/null || missing="$$missing python3-$$m"; done; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing$$missing"; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
		else echo "the tests need:$$missing (install them, or run this as root on Debian)"; exit 1; fi; \
	fi
	@for d in sign/testdata/node cmd/crawlgate/testdata/node; do \
		if [ -f $$d/package.json ] && ! (cd $$d && npm ls --depth=0 >/dev/null 2>&1); then (cd $$d && npm ci --no-audit --no-fund --silent) || exit 1; fi; \
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
