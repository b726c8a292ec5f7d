# Programs and packages that the build needs. As root on Debian or Ubuntu they are installed, elsewhere listed.
#
# libfabric is never needed to build, only to test and run over rdm. MX_LIBFABRIC=file stands for the library,
# LIBFABRIC_INCLUDE=directory for its headers.

RUST_MIN        := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
DEPS_COMMANDS   := gcc g++ make pkg-config nm readelf
DEPS_PACKAGES   := gcc g++ make pkg-config binutils libc6-dev libcmocka-dev libxxhash-dev
DEPS_FABRIC     := libfabric1 libfabric-dev

# The tests make networks of their own.
check check-long: DEPS_COMMANDS += ip nft
check check-long: DEPS_PACKAGES += iproute2 nftables

.PHONY: deps

deps:
	@mk/deps.sh $(RUST_MIN) "$(DEPS_COMMANDS)" "$(DEPS_PACKAGES)" \
	    "$(if $(filter rdm,$(PORTS)),$(DEPS_FABRIC))" $(CARGO)
