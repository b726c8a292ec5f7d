# Hostile inputs that libFuzzer finds.
#
#   make fuzz TARGET=session MINUTES=5      datagram, session or endpoint
#   make fuzz-save TARGET=session           adds inputs found, minimised, to testing/fuzz/corpus
#
# Inputs found are in testing/fuzz/libfuzzer/corpus, those that failed in testing/fuzz/libfuzzer/artifacts. To run one
# of the latter again:
#
#   MX_FUZZ_INPUT=$PWD/testing/fuzz/libfuzzer/artifacts/session/... cargo test -p mx-fuzz --test saved session
#
# `check` runs the saved inputs, and some random ones, on any toolchain (testing/fuzz/tests/saved.rs).

.PHONY: fuzz fuzz-save fuzz-tools

fuzz: TARGET ?= session
fuzz: MINUTES ?= 5
fuzz-save: TARGET ?= session

FUZZ_DIR   := testing/fuzz/libfuzzer
FUZZ_CARGO = CARGO_TARGET_DIR='$(abspath $(CARGO_TARGET))/fuzz' cargo +nightly fuzz
FUZZ_FLAGS := -max_len=4096 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1

fuzz-tools:
	@cargo +nightly --version >/dev/null 2>&1 || { \
	    echo "fuzz: no nightly toolchain: rustup toolchain install nightly --profile minimal"; \
	    exit 1; }
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { \
	    echo "fuzz: no cargo-fuzz: cargo install cargo-fuzz (and a C++ compiler: apt-get install g++)"; \
	    exit 1; }

fuzz: fuzz-tools
	@mkdir -p $(FUZZ_DIR)/corpus/$(TARGET)
	$(FUZZ_CARGO) run --fuzz-dir $(FUZZ_DIR) $(TARGET) $(FUZZ_DIR)/corpus/$(TARGET) testing/fuzz/corpus/$(TARGET) -- \
	    -max_total_time=$$(($(MINUTES) * 60)) $(FUZZ_FLAGS)

# Saves only inputs that reach code which the saved ones do not.
fuzz-save: fuzz-tools
	$(FUZZ_CARGO) run --fuzz-dir $(FUZZ_DIR) $(TARGET) testing/fuzz/corpus/$(TARGET) $(FUZZ_DIR)/corpus/$(TARGET) -- -merge=1 $(FUZZ_FLAGS)
