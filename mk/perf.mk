# The benchmark.

BIN_TARGETS += $(BINDIR)/bmi_mx_perf
BENCH_FLAGS ?=

.PHONY: bench $(BINDIR)/bmi_mx_perf

$(BINDIR)/bmi_mx_perf:
	@mkdir -p $(@D)
	$(CARGO) build --release -p bmi_mx_perf
	cp $(CARGO_TARGET)/release/bmi_mx_perf $@

# A table and SVG plots under build/bench. BENCH_FLAGS=--json for one object a line.
bench: lib $(BINDIR)/bmi_mx_perf
	@mkdir -p $(BUILD)/bench
	$(BINDIR)/bmi_mx_perf all --library $(LIBDIR)/libbmi_mx.so --plots $(BUILD)/bench \
	    $(BENCH_FLAGS) | tee $(BUILD)/bench/table.txt
