# Builds, tests, runs and installs libbmi_mx and libmyriexpress. `make help` lists the targets.
#
#   make          libraries and programs under build/
#   make check    the tests that a change must pass
#   make run      the example: a file server, a client, a file that is copied both ways
#
# mk/*.mk hold the parts. A part appends to BIN_TARGETS (programs that `all` builds), CHECK_TARGETS and
# CHECK_LONG_TARGETS (parts of `check` and `check-long`, in this order) and INSTALL_BINS (programs that `install`
# installs).

.DEFAULT_GOAL := all
SHELL         := /bin/bash
.SHELLFLAGS   := -eu -c
# Most steps use all cores themselves.
.NOTPARALLEL:

VERSION       := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

BUILD         ?= build
LIBDIR        := $(BUILD)/lib
BINDIR        := $(BUILD)/bin
CARGO         ?= cargo
CARGO_TARGET  := $(or $(CARGO_TARGET_DIR),target)
CC            ?= cc
CXX           ?= c++
CFLAGS        ?=
LDFLAGS       ?=

# Ports of tests and examples: PORT=rdm, PORT="local tcp"; by default every port with a route
# (ports/base/src/ports.rs).
ALL_PORTS     := $(shell sed -n 's/^ *row.[A-Z]*. "\([a-z]*\)". Some.*/\1/p' ports/base/src/ports.rs)
PORTS         := $(or $(PORT),$(ALL_PORTS))

BIN_TARGETS   :=
CHECK_TARGETS :=
CHECK_LONG_TARGETS :=
# The simulator computes while C programs mostly wait for each other, so the two can run at the same time.
CHECK_BESIDE  := test
INSTALL_BINS  :=

.PHONY: all check check-long parts help

include mk/deps.mk mk/rust.mk
include $(filter-out mk/deps.mk mk/rust.mk mk/install.mk,$(sort $(wildcard mk/*.mk)))
include mk/install.mk

# Last, because its clients take the processors from all parts that run beside.
CHECK_TARGETS += scale-test

all: deps lib $(BIN_TARGETS)

# With assertions, in a directory of its own, so that each crate is compiled once for it.
check: deps
	@$(if $(PORT),,C_TESTS_NOT_RDM='$(C_TESTS_ABOVE)') \
	$(MAKE) --no-print-directory PROFILE=dev BUILD=$(BUILD)/check parts NAME=$@ \
	    PARTS='$(or $(PARTS),$(CHECK_TARGETS))' BESIDE='$(CHECK_BESIDE)'

check-long: deps
	@$(MAKE) --no-print-directory parts NAME=$@ PARTS='$(or $(PARTS),$(CHECK_LONG_TARGETS))'

parts:
	@MAKE='$(MAKE)' BESIDE='$(BESIDE)' mk/parts.sh $(NAME) $(BUILD)/logs $(PARTS)

help:
	@echo "all         libraries and programs under $(BUILD)/ (the default)"
	@echo "check       the tests that a change must pass, in parts: $(CHECK_TARGETS)"
	@echo "            PARTS='fmt c-check': only these; CHECK_BESIDE=: one part at a time"
	@echo "check-long  the slow parts: $(CHECK_LONG_TARGETS)"
	@echo "nightly     tests that take hours, for each night and before a release: $(NIGHTLY_TARGETS)"
	@echo "times       measures run, all, check and quick in a clean clone"
	@echo "quick       formatting, lints, unit tests, three C programs: for use while you make a change"
	@echo "check-asan, check-valgrind   the C tests under the memory checkers"
	@echo "            PORT=local, tcp, rdm or dgram: the C tests and the example over that port only"
	@echo "call-stacks the most stack that each call takes in the C tests, in bytes"
	@echo "check-fabric   libfabric's providers, one by one (docs/fabrics.md)"
	@echo "check-dgram    the dgram port with lost, duplicated, reordered and damaged datagrams"
	@echo "check-net   bad links, interruptions and many clients between network namespaces (as root); PORT=dgram"
	@echo "check-rxe   the fabric over soft-RoCE, in a virtual machine (image: as root); check-rxe-net: check-net there"
	@echo "check-arm64 the C programs and the file server on 64-bit Arm, cross-compiled and emulated (Debian packages: as root)"
	@echo "torture     random programs on real processes: MINUTES=10 PORT=tcp SEED=1"
	@echo "na-check    the plugin libna_plugin_mx without Mercury; PORT=tcp"
	@echo "explore     every order of a few steps, in the simulator: DEPTH=6 (DEPTH=+1: one more than check) ONLY=crossed"
	@echo "soak        random programs in the simulator: SEEDS=20000, SEED=17; ONLY=goodput"
	@echo "fuzz        hostile inputs from libFuzzer: TARGET=session MINUTES=5 (nightly Rust, cargo-fuzz)"
	@echo "run         the example: a file server, and a client that copies FILE=... to it and back; PORT=local, tcp, rdm or dgram"
	@echo "bench       latency, bandwidth and message rate, compared with other libraries"
	@echo "bench-picture   draws bench/results.svg from the table in bench/RESULTS.md"
	@echo "bench-instructions   instructions of each call of the method, with callgrind"
	@echo "bench-syscalls       system calls of a wake-up, with strace; PORT=tcp"
	@echo "bench-mx    libmyriexpress compared with the method; PORT=tcp"
	@echo "bench-dgram the dgram port compared with UDP, TCP and udp;ofi_rxd, and with loss"
	@echo "bench-busy  a receiver that works between messages, compared with TCP: processor time, sleeps; PORT=local"
	@echo "bench-scale a server with ever more clients: memory, connects, latency; check-scale: CLIENTS=10000"
	@echo "header      writes include/bmi_mx.h from the sources"
	@echo "install     PREFIX=/usr/local DESTDIR= (and uninstall)"
	@echo "deb         Debian packages under $(BUILD)/deb; check-deb: installs and removes them in a new Debian 12 (root)"
	@echo "deb-arm64   the same for 64-bit Arm, cross-compiled, under $(BUILD)/deb/arm64; check-deb-arm64: their file server, emulated"
	@echo "deps        installs missing packages (as root, on Debian), or lists them"
	@echo "clean       removes $(BUILD)/ and cargo's output"
