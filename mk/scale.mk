# A server and thousands of clients.
#
#   bench-scale   the cost of each client, and whether it slows others down: a table.
#                 BENCH_FLAGS="--peers 1,1000 --repeats 3"
#   scale-test    the test of check
#   check-scale   the same optimised: CLIENTS=10000, with the time taken

CLIENTS ?= 10000

.PHONY: bench-scale check-scale scale-test

bench-scale: lib $(BINDIR)/bmi_mx_perf
	@mkdir -p $(BUILD)/bench
	$(BINDIR)/bmi_mx_perf scale --library $(LIBDIR)/libbmi_mx.so \
	    $(BENCH_FLAGS) | tee $(BUILD)/bench/scale.txt

# Beside these clients, check's C programs would run at a thirtieth of their speed and give up.
scale-test:
	$(CARGO) test -p bmi_mx_crowd --no-fail-fast

check-scale:
	BMI_MX_CROWD_CLIENTS=$(CLIENTS) $(CARGO) test --release -p bmi_mx_crowd --test scale -- --nocapture
