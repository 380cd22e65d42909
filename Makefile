# sharness: see README.md. `make deps build test` needs root and a Debian-like system for deps.
PREFIX  ?= /usr/local
DESTDIR ?=
GO      ?= go
CC      ?= gcc
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

LDFLAGS  = -s -w -X main.version=$(VERSION)
GOFLAGS_ = -trimpath -buildvcs=false
# Programs that confine all of their own threads cannot be built with cgo (syscall.AllThreadsSyscall).
STATIC   = sharness-init sharness-bashd sharness-relay sharness-agent sharness-watch sharness-probe
CLIENT   = -static -nostdlib -ffreestanding -fno-pie -no-pie -fno-stack-protector -fno-asynchronous-unwind-tables \
           -Os -Wall -Wextra -Werror -DVERSION='"$(VERSION)"' -Wl,--build-id=none -Wl,-z,noexecstack

.PHONY: all deps build install test test-agents lint bench demo clean
all: build

deps: ; ./.ci/deps

build: bin/sharness bin/sharness-bash bin/sharness-probe-dynamic $(STATIC:%=bin/%)

# The go command knows best whether anything has changed.
.PHONY: bin/sharness bin/sharness-probe-dynamic $(STATIC:%=bin/%)
bin/sharness:
	CGO_ENABLED=1 $(GO) build $(GOFLAGS_) -ldflags '$(LDFLAGS)' -o $@ ./cmd/sharness
$(STATIC:%=bin/%): bin/%:
	CGO_ENABLED=0 $(GO) build $(GOFLAGS_) -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*
bin/sharness-probe-dynamic:
	CGO_ENABLED=1 $(GO) build $(GOFLAGS_) -ldflags '$(LDFLAGS) -linkmode=external' -tags netcgo -o $@ ./cmd/sharness-probe
bin/sharness-bash: cmd/sharness-bash/client.c cmd/sharness-bash/sys.h
	@mkdir -p bin
	$(CC) $(CLIENT) -o $@ $<

install: build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/sharness
	install -m 0755 bin/sharness $(DESTDIR)$(PREFIX)/bin/
	install -m 0755 bin/sharness-bash bin/sharness-init bin/sharness-bashd bin/sharness-relay bin/sharness-agent bin/sharness-watch \
	    $(DESTDIR)$(PREFIX)/libexec/sharness/

clean:
	rm -rf bin
