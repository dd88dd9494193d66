# The two commands that matter: `go run ./cmd/vipwalk demo` and `make test`.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# What `make test` keeps of its last run.
LOG ?= /tmp/vipwalk-test.log

.PHONY: build test quick cluster race fuzz bench lint deps

build: ## the binary, in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-X github.com/vipwalk/vipwalk/pkg/cli.version=$(VERSION)" -o bin/vipwalk ./cmd/vipwalk

test: deps ## every test: the quick ones, then those on a real cluster
	./.ci/gotest $(LOG) . ./...
	./.ci/gotest $(LOG).cluster testdata/cluster -trimpath ./...

quick: ## the tests that need nothing but Go
	$(GO) test ./...

cluster: deps ## the tests on a real cluster alone
	./.ci/gotest $(LOG).cluster testdata/cluster -trimpath ./...

race: ## the quick tests under the race detector
	$(GO) test -race ./...

FUZZTIME ?= 5m
fuzz: ## the iptables parser and the walk, each for FUZZTIME
	$(GO) test ./pkg/netfilter/iptables -run '^$$' -fuzz '^FuzzParse$$' -fuzztime $(FUZZTIME)
	$(GO) test ./pkg/netfilter/iptables -run '^$$' -fuzz '^FuzzWalk$$' -fuzztime $(FUZZTIME)

bench: ## what docs/performance.md records
	$(GO) test ./pkg/... -run '^$$' -bench . -benchmem

lint:
	golangci-lint run ./...

# What the tests on real kernels and the real cluster need from Debian. Nothing
# is installed where everything is there, nor where we are not root: those tests
# then skip and say why.
deps:
	@./.ci/deps
