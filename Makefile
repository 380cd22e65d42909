# sharness: see README.md. What touches the kernel (test, test-agents, demo, bench) wants root.
PREFIX  ?= /usr/local
DESTDIR ?=
GO      ?= go
# CC has a value of make's own, so ?= would not do.
ifeq ($(origin CC),default)
CC       = gcc
endif
# sudo's secure_path does not know the usual place of Go.
export PATH := $(PATH):/usr/local/go/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

LDFLAGS  = -s -w -X main.version=$(VERSION)
GOFLAGS_ = -trimpath -buildvcs=false
# Programs that confine all of their own threads cannot be built with cgo (syscall.AllThreadsSyscall).
STATIC   = sharness-init sharness-bashd sharness-relay sharness-agent sharness-watch sharness-probe
CLIENT   = -static -nostdlib -ffreestanding -fno-pie -no-pie -fno-stack-protector -fno-asynchronous-unwind-tables \
           -Os -Wall -Wextra -Werror -DVERSION='"$(VERSION)"' -Wl,--build-id=none -Wl,-z,noexecstack

.PHONY: all deps generate build install uninstall test test-agents test-kernels race fuzz lint bench demo clean
all: build

deps:
	./.ci/deps

# The objects are committed; this makes them again, with the compiler that .ci/deps pins.
generate:
	$(GO) generate ./bpf

build: bin/sharness bin/sharness-bash bin/sharness-box bin/sharness-probe-dynamic $(STATIC:%=bin/%)

# The go command knows best whether anything has changed.
.PHONY: bin/sharness bin/sharness-probe-dynamic $(STATIC:%=bin/%)
bin/sharness:
	CGO_ENABLED=1 $(GO) build $(GOFLAGS_) -ldflags '$(LDFLAGS)' -o $@ ./cmd/sharness
$(STATIC:%=bin/%): bin/%:
	CGO_ENABLED=0 $(GO) build $(GOFLAGS_) -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*
bin/sharness-probe-dynamic:
	CGO_ENABLED=1 $(GO) build $(GOFLAGS_) -ldflags '$(LDFLAGS) -linkmode=external' -tags netcgo -o $@ ./cmd/sharness-probe
bin/sharness-bash: cmd/sharness-bash/client.c $(wildcard cmd/sharness-bash/*.h)
	@mkdir -p bin
	$(CC) $(CLIENT) -o $@ $<
bin/sharness-box: cmd/sharness-box/box.c $(wildcard cmd/sharness-box/*.h) cmd/sharness-bash/sys.h
	@mkdir -p bin
	$(CC) $(CLIENT) -o $@ $<

install: build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/sharness $(DESTDIR)$(PREFIX)/share/man/man1 \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
	    $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 0755 bin/sharness $(DESTDIR)$(PREFIX)/bin/
	install -m 0755 bin/sharness-bash bin/sharness-box bin/sharness-init bin/sharness-bashd bin/sharness-relay bin/sharness-agent bin/sharness-watch \
	    bin/sharness-probe bin/sharness-probe-dynamic \
	    $(DESTDIR)$(PREFIX)/libexec/sharness/
	bin/sharness docs man $(DESTDIR)$(PREFIX)/share/man/man1
	for page in $$(find docs -name '*.md'); do install -D -m 0644 $$page $(DESTDIR)$(PREFIX)/share/doc/sharness/$${page#docs/} || exit 1; done
	install -m 0644 cmd/sharness-bash/sharness-bash.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	bin/sharness completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/sharness
	bin/sharness completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sharness
	bin/sharness completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sharness.fish

# What install put there. Manifests, agents' folders, logs and what was quarantined are yours: /etc/sharness,
# /var/lib/sharness and /var/log/sharness stay.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/sharness $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sharness \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sharness $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sharness.fish
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/sharness.1 $(DESTDIR)$(PREFIX)/share/man/man1/sharness-*.1
	rm -rf $(DESTDIR)$(PREFIX)/libexec/sharness $(DESTDIR)$(PREFIX)/share/doc/sharness

test: build
	./.ci/test
test-agents: build
	./.ci/test-agents
# Emulated machines: KERNELS="6.1 newest" runs on these only.
test-kernels: build
	./.ci/kernels $(KERNELS)
# Packages with threads of their own whose tests work with cgo, which the race detector needs.
race:
	CGO_ENABLED=1 $(GO) test -race ./event/... ./bashserver/... ./launcher/tty ./internal/fakellm
# FUZZTIME=10m of each target; FUZZ=bashserver/wire only of those.
fuzz:
	./.ci/fuzz '$(or $(FUZZ),.)'
lint:
	./.ci/lint
demo: deps build
	./.ci/demo
# BENCH=start, command or trace measures only that, BENCH=filter the output filter; ROUNDS=N as often.
bench: build
	$(GO) run ./internal/bench -only '$(BENCH)' -rounds '$(or $(ROUNDS),40)'

clean:
	rm -rf bin
