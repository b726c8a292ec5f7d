# The libraries, their headers, and everything cargo checks.

.PHONY: lib header header-check fmt clippy docs test exports layering clean

CHECK_TARGETS += fmt clippy docs lib header-check test

# Each library: its name and the number that changes when programs linked against an older one would
# break (also in the crates' build.rs).
LIBRARIES := bmi_mx bmi_mx_standalone myriexpress
SO_bmi_mx            := 0
SO_bmi_mx_standalone := 0
SO_myriexpress       := 1

# The method is compiled once for each of its hosts: package, and what cargo is told beside that.
PACKAGE_bmi_mx             := bmi-mx
PACKAGE_bmi_mx_standalone  := bmi-mx
PACKAGE_myriexpress        := myriexpress
FEATURES_bmi_mx_standalone := standalone

# Where cargo builds it: two builds of one package in one place would undo each other every time.
target_of = $(CARGO_TARGET)$(if $(FEATURES_$(1)),/$(FEATURES_$(1)))

# lib$(1).so -> soname -> the file itself.
soname   = lib$(1).so.$(SO_$(1))
realname = lib$(1).so.$(if $(filter $(SO_$(1)).%,$(VERSION)),,$(SO_$(1)).)$(VERSION)

# The directory of `cargo build --profile tools`.
TOOLS_TARGET := $(CARGO_TARGET)/tools

# $(1) as cargo calls it.
built = lib$(subst -,_,$(PACKAGE_$(1)))

# Copied only when it changed, so that what is linked against it is not linked again.
define place_static
$(CARGO) build --profile tools -p $(PACKAGE_$(1)) --lib --features "$(FEATURES_$(1))" --target-dir $(target_of)
@cmp -s $(target_of)/tools/$(built).a $(LIBDIR)/lib$(1).a || \
    install -m 644 $(target_of)/tools/$(built).a $(LIBDIR)/lib$(1).a

endef

define place_shared
$(CARGO) rustc --release -p $(PACKAGE_$(1)) --lib --crate-type cdylib --features "reserve $(FEATURES_$(1))" --target-dir $(target_of)
@cmp -s $(target_of)/release/$(built).so $(LIBDIR)/$(realname) || \
    install -m 755 $(target_of)/release/$(built).so $(LIBDIR)/$(realname)
@ln -sfn $(realname) $(LIBDIR)/$(soname)
@ln -sfn $(soname) $(LIBDIR)/lib$(1).so

endef

# Shared: each by itself, because beside an rlib nothing is optimised across crates, and with an allocator of
# its own (mx_sys::reserve). Static: neither, so that a program can be linked with both.
lib:
	@mkdir -p $(LIBDIR)
	$(foreach library,$(LIBRARIES),$(call place_static,$(library)))
	$(foreach library,$(LIBRARIES),$(call place_shared,$(library)))

header:
	$(CARGO) run -q -p gen_header -- .

header-check:
	$(CARGO) run -q -p gen_header -- . --check

# A toolchain from Debian has no clippy. CI never goes without.
have_tool = $(CARGO) $(1) --version >/dev/null 2>&1 || \
    { [ -z "$${CI:-}" ] && echo "$(1): not installed, left out"; }

fmt:
	@$(call have_tool,fmt)
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all -- --check; fi

clippy:
	@$(call have_tool,clippy)
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
	    $(CARGO) clippy -q --workspace --all-targets -- -D warnings; fi

# Private items are documented too, so links to them are fine.
docs:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc -q --workspace --no-deps --document-private-items

# Unit tests, the simulator's runs, exported symbols, layering.
test:
	$(CARGO) test --workspace --no-fail-fast
	$(CARGO) test -p bmi-mx --features standalone --lib

# Two of them alone, while working.
exports layering:
	$(CARGO) test -q -p bmi-mx --test $@

clean:
	$(CARGO) clean
	rm -rf $(BUILD)
