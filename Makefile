# libbmi_mx and libmyriexpress: build, test, run, install. `make help` lists the targets.
#
#   make          libraries and programs under build/
#   make check    everything a change must pass
#   make run      the main job: a file server, a client, a real file there and back
#
# mk/*.mk hold the parts. A part appends to BIN_TARGETS (programs `all` builds), CHECK_TARGETS and
# CHECK_LONG_TARGETS (what `check` and `check-long` run, in that order) and INSTALL_BINS (programs `install` installs).

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

# What tests and examples run over: PORT=rdm, PORT="local tcp"; by default every port with a route (ports/base/src/ports.rs).
ALL_PORTS     := $(shell sed -n 's/^ *row.[A-Z]*. "\([a-z]*\)". Some.*/\1/p' ports/base/src/ports.rs)
PORTS         := $(or $(PORT),$(ALL_PORTS))

BIN_TARGETS   :=
CHECK_TARGETS :=
CHECK_LONG_TARGETS :=
# What the simulator computes and C programs wait for each other have little to do with each other.
CHECK_BESIDE  := test
INSTALL_BINS  :=

.PHONY: all check check-long parts help

include mk/deps.mk mk/rust.mk
include $(filter-out mk/deps.mk mk/rust.mk mk/install.mk,$(sort $(wildcard mk/*.mk)))
include mk/install.mk

# Last: its clients keep the processors from all that runs beside.
CHECK_TARGETS += scale-test

all: deps lib $(BIN_TARGETS)

# With assertions, in a directory of its own: each crate is compiled once for it.
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
	@echo "check       what a change must pass, part by part: $(CHECK_TARGETS)"
	@echo "            PARTS='fmt c-check': only these; CHECK_BESIDE=: no part beside others"
	@echo "check-long  the same with $(CHECK_LONG_TARGETS)"
	@echo "nightly     what takes hours, each night and before a release: $(NIGHTLY_TARGETS)"
	@echo "times       how long run, all, check and quick take from a clean clone"
	@echo "quick       formatting, lints, unit tests, three C programs: while a change is being made"
	@echo "check-asan, check-valgrind   the C tests under the memory checkers"
	@echo "            PORT=local, tcp, rdm or dgram: the C tests and the example over that port only"
	@echo "call-stacks the stack that each call takes at most in the C tests, in bytes"
	@echo "check-fabric   libfabric's providers, one by one (docs/fabrics.md)"
	@echo "check-dgram    the dgram port with datagrams lost, doubled, reordered and damaged"
	@echo "check-net   bad links, cuts and crowds between network namespaces (as root); PORT=dgram"
	@echo "check-rxe   the fabric over soft-RoCE, in a virtual machine (image: as root); check-rxe-net: check-net there"
	@echo "check-arm64 the C programs and the file server on 64-bit Arm, cross-compiled and emulated (Debian packages: as root)"
	@echo "torture     random programs on real processes: MINUTES=10 PORT=tcp SEED=1"
	@echo "na-check    libna_plugin_mx's table without Mercury; PORT=tcp"
	@echo "explore     every order of a few steps, on the simulator: DEPTH=6 (DEPTH=+1: one more than check) ONLY=crossed"
	@echo "soak        random programs on the simulator: SEEDS=20000, SEED=17; ONLY=goodput"
	@echo "fuzz        hostile inputs by libFuzzer: TARGET=session MINUTES=5 (nightly Rust, cargo-fuzz)"
	@echo "run         a file server and a client: FILE=... there and back; PORT=local, tcp, rdm or dgram"
	@echo "bench       latency, bandwidth and rate beside their references"
	@echo "bench-picture   bench/results.svg from the table in bench/RESULTS.md"
	@echo "bench-instructions   instructions of each call of the method, by callgrind"
	@echo "bench-syscalls       system calls of a wake-up, by strace; PORT=tcp"
	@echo "bench-mx    libmyriexpress beside the method; PORT=tcp"
	@echo "bench-dgram the dgram port beside UDP, TCP and udp;ofi_rxd, and under loss"
	@echo "bench-busy  a receiver that works between messages, beside TCP: processor time, sleeps; PORT=local"
	@echo "bench-scale a server of ever more clients: memory, connects, latency; check-scale: CLIENTS=10000"
	@echo "header      writes include/bmi_mx.h from the sources"
	@echo "install     PREFIX=/usr/local DESTDIR= (and uninstall)"
	@echo "deb         Debian packages under $(BUILD)/deb; check-deb: in a fresh Debian 12, there and away (root)"
	@echo "deb-arm64   the same for 64-bit Arm, cross-compiled, under $(BUILD)/deb/arm64; check-deb-arm64: their file server, emulated"
	@echo "deps        installs what is missing (as root, Debian), or says what is"
	@echo "clean       removes $(BUILD)/ and cargo's products"
