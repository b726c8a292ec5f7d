# The libraries, their headers, programs in Rust, and all tests of cargo.
#
#   PROFILE   release: what is installed, optimised across crates. dev: what `check` builds, with assertions

.PHONY: lib header header-check fmt clippy docs test exports layering clean FORCE

CHECK_TARGETS += fmt clippy docs lib header-check test

PROFILE   ?= release
# The directory of cargo's products.
CARGO_OUT := $(CARGO_TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

# Each library: its name, and the number that changes when programs linked against an older one would break (also in
# the build.rs of the packages).
LIBRARIES := bmi_mx bmi_mx_standalone myriexpress
SO_bmi_mx            := 0
SO_bmi_mx_standalone := 0
SO_myriexpress       := 1

# lib$(1).so -> soname -> the file itself.
soname   = lib$(1).so.$(SO_$(1))
realname = lib$(1).so.$(if $(filter $(SO_$(1)).%,$(VERSION)),,$(SO_$(1)).)$(VERSION)

# Plugins that a program loads by name from a folder: the library of each package; no program links to them.
PLUGINS        := na_mx
PLUGIN_na_mx   := libna_plugin_mx.so

# Links to mx_info, each with a part of its functions.
MX_INFO_NAMES := mx_endpoint_info mx_counters mx_fabrics

# Copied only when the library or static.sh has changed, so that programs are not linked again. In the static library
# only the exports of the shared one remain visible, so that a program can be linked with several.
define place
@if ! cmp -s $(CARGO_OUT)/lib$(1).so $(LIBDIR)/$(realname) || [ mk/static.sh -nt $(LIBDIR)/lib$(1).a ]; then \
    mk/static.sh $(CARGO_OUT)/lib$(1).a $(CARGO_OUT)/lib$(1).so $(LIBDIR)/lib$(1).a; \
    install -m 755 $(CARGO_OUT)/lib$(1).so $(LIBDIR)/$(realname); \
    ln -sfn $(realname) $(LIBDIR)/$(soname); \
    ln -sfn $(soname) $(LIBDIR)/lib$(1).so; \
fi

endef

lib:
	@mkdir -p $(LIBDIR)
	$(CARGO) build --profile $(PROFILE) $(foreach library,$(LIBRARIES) $(PLUGINS),-p $(subst _,-,$(library)))
	$(foreach library,$(LIBRARIES),$(call place,$(library)))
	@for plugin in $(foreach plugin,$(PLUGINS),$(PLUGIN_$(plugin))); do \
	    cmp -s $(CARGO_OUT)/$$plugin $(LIBDIR)/$$plugin || install -m 755 $(CARGO_OUT)/$$plugin $(LIBDIR)/; \
	done

# Programs find the libraries beside them, both in the build directory and where they are installed; with RPATH= the
# loader has to. Programs in Rust get this from their build.rs.
RPATH ?= -Wl,-rpath,'$$ORIGIN/../lib'
export PROGRAMS_RPATH := $(if $(RPATH),$$ORIGIN/../lib)

# Programs in Rust, by the name of their package.
RUST_PROGRAMS = $(addprefix $(BINDIR)/,mx_info bmi_mx_perf bmi_mx_torture mx_shaper)

$(RUST_PROGRAMS): $(BINDIR)/%: FORCE
	@mkdir -p $(@D)
	$(CARGO) build --profile $(PROFILE) -p $*
	@cmp -s $(CARGO_OUT)/$* $@ || install -m 755 $(CARGO_OUT)/$* $@

header:
	$(CARGO) run -q -p gen_header -- .

# Runs only when the sources of the headers have changed.
HEADER_INPUTS := $(wildcard src/abi/*.rs libraries/*/src/*.rs mk/gen_header/src/*.rs include/bmi_mx*.h) cbindgen.toml Cargo.toml

header-check: $(BUILD)/headers-checked

$(BUILD)/headers-checked: $(HEADER_INPUTS)
	$(CARGO) run -q -p gen_header -- . --check
	@mkdir -p $(@D) && touch $@

# A toolchain from Debian has no clippy. CI always has one.
have_tool = $(CARGO) $(1) --version >/dev/null 2>&1 || \
    { [ -z "$${CI:-}" ] && echo "$(1): not installed, left out"; }

fmt:
	@$(call have_tool,fmt)
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all -- --check; fi

clippy:
	@$(call have_tool,clippy)
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
	    $(CARGO) clippy -q --workspace --all-targets -- -D warnings; fi

# Private items are documented too, so links to them are allowed.
docs:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc -q --workspace --no-deps --document-private-items

# Unit tests, the simulator's runs, exported symbols, layering. The header generator is tested separately, because its
# dependencies have features for which everything would be compiled again. Thousands of clients: scale-test.
test:
	$(CARGO) test --workspace --exclude gen_header --exclude bmi_mx_crowd --no-fail-fast
	$(CARGO) test -q -p gen_header

# Two of them alone, while working.
exports:
	$(CARGO) test -q -p bmi-mx --test library

layering:
	$(CARGO) test -q -p lints layering

clean:
	$(CARGO) clean
	rm -rf $(BUILD)
