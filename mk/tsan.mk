# Data races and lost wake-ups between threads.
#
#   tsan    tests with many threads under ThreadSanitizer, if there is a nightly toolchain
#   loom    every order in which threads can meet at the hand-off of the wait (mx-sys/loom)
#
# `check` runs tsan's tests without a sanitizer, with cargo's other tests, and `check-long` runs loom.

TSAN_FLAGS  := --cfg tsan -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer
TSAN_TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# Apart from the other build, which these flags would cause to be compiled again each time.
TSAN_CARGO   = RUSTFLAGS='$(TSAN_FLAGS)' CARGO_TARGET_DIR='$(CARGO_TARGET)/tsan' \
    TSAN_OPTIONS='suppressions=$(CURDIR)/testing/method/tsan.supp history_size=7' \
    cargo +nightly test -q --target $(TSAN_TARGET)

.PHONY: tsan loom

tsan:
	@cargo +nightly --version >/dev/null 2>&1 || { \
	    echo "tsan: no nightly toolchain: rustup toolchain install nightly --profile minimal"; \
	    exit 1; }
	$(TSAN_CARGO) -p mx-sys --test all -- progress:: helper:: endpoint::
	$(TSAN_CARGO) -p mx-port-local --lib
	$(TSAN_CARGO) -p bmi-method --test instance
	$(TSAN_CARGO) -p myriexpress-api --test all races::
	$(TSAN_CARGO) -p myriexpress-api --lib -- process

# A crate of its own, so that nothing else is built with loom. The first build takes a minute, the models some
# seconds.
CHECK_LONG_TARGETS += loom

loom:
	cd mx-sys/loom && CARGO_TARGET_DIR='$(abspath $(CARGO_TARGET))/loom' \
	    $(CARGO) test -q --locked -- progress::models doorbell futex memory
