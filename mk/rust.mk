# The library, its header, and everything cargo checks.

.PHONY: lib header header-check fmt clippy docs test exports layering clean

CHECK_TARGETS += fmt clippy docs lib header-check test

SONAME   := libbmi_mx.so.$(SOVERSION)
REALNAME := libbmi_mx.so.$(VERSION)

# Copied only when it changed, so that what is linked against it is not linked again.
lib:
	$(CARGO) build --release -p bmi-mx --lib
	@mkdir -p $(LIBDIR)
	@cmp -s $(CARGO_TARGET)/release/libbmi_mx.so $(LIBDIR)/$(REALNAME) || \
	    install -m 755 $(CARGO_TARGET)/release/libbmi_mx.so $(LIBDIR)/$(REALNAME)
	@cmp -s $(CARGO_TARGET)/release/libbmi_mx.a $(LIBDIR)/libbmi_mx.a || \
	    install -m 644 $(CARGO_TARGET)/release/libbmi_mx.a $(LIBDIR)/libbmi_mx.a
	@ln -sfn $(REALNAME) $(LIBDIR)/$(SONAME)
	@ln -sfn $(SONAME) $(LIBDIR)/libbmi_mx.so

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

# Two of them alone, while working.
exports layering:
	$(CARGO) test -q -p bmi-mx --test $@

clean:
	$(CARGO) clean
	rm -rf $(BUILD)
