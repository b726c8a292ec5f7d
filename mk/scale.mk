# A server and thousands of clients.
#
#   bench-scale   what each costs, and whether it slows others down: a table.
#                 BENCH_FLAGS="--peers 1,1000 --repeats 3"
#   check-scale   the test of check at its full size, on its own: CLIENTS=10000, and how long it took

CLIENTS ?= 10000

.PHONY: bench-scale check-scale

bench-scale: lib $(BINDIR)/bmi_mx_perf
	@mkdir -p $(BUILD)/bench
	$(BINDIR)/bmi_mx_perf scale --library $(LIBDIR)/libbmi_mx.so \
	    $(BENCH_FLAGS) | tee $(BUILD)/bench/scale.txt

check-scale:
	BMI_MX_CROWD_CLIENTS=$(CLIENTS) $(CARGO) test --release -p bmi_mx_crowd --test scale -- --nocapture
