# The benchmark.

BIN_TARGETS += $(BINDIR)/bmi_mx_perf
BENCH_FLAGS ?=

.PHONY: bench bench-picture bench-instructions bench-mx bench-rdm bench-dgram bench-busy bench-links

# Prints a table. Without BENCH_FLAGS it is written to bench/RESULTS.md, with the commit and the machine.
# BENCH_FLAGS=--json prints one object a line. Without libfabric, or without a provider, rdm is reported as not
# measured; without UCX (Debian: libucx0), UCX beside local and tcp.
bench: lib $(BINDIR)/bmi_mx_perf
	@mkdir -p $(BUILD)/bench
	$(BINDIR)/bmi_mx_perf all --library $(LIBDIR)/libbmi_mx.so $(BENCH_FLAGS) | tee $(BUILD)/bench/table.txt
	$(if $(BENCH_FLAGS),,mk/results.sh $(BUILD)/bench/table.txt bench/RESULTS.md)
	$(if $(BENCH_FLAGS),,$(MAKE) --no-print-directory bench-picture)

# Draws the README's picture from the table in bench/RESULTS.md. Measures nothing.
bench-picture:
	$(CARGO) run -q -p bmi_mx_perf --example picture -- bench/RESULTS.md bench/results.svg

# Counts instructions of each call of the method, 8 B over local, with callgrind (Debian: valgrind). The figures do
# not depend on other load of the machine.
bench-instructions: lib $(BINDIR)/bmi_mx_perf
	$(BINDIR)/bmi_mx_perf instructions --library $(LIBDIR)/libbmi_mx.so $(BENCH_FLAGS)

# The MX library beside the method: the same round trips through both, and matching.
bench-mx: lib $(BINDIR)/bmi_mx_perf
	$(BINDIR)/bmi_mx_perf mx --library $(LIBDIR)/libbmi_mx.so \
	    --mx-library $(LIBDIR)/libmyriexpress.so $(if $(PORT),--port $(PORT)) $(BENCH_FLAGS)

# The rdm port beside libfabric itself. MX_PROVIDER= and MX_LIBFABRIC= choose provider and library. Fails if there is
# none.
bench-rdm: lib $(BINDIR)/bmi_mx_perf
	$(BINDIR)/bmi_mx_perf all --port rdm --library $(LIBDIR)/libbmi_mx.so $(BENCH_FLAGS)

# The dgram port beside a bare UDP socket, bare TCP and libfabric's own reliable datagrams; goodput against loss, and
# memory of an idle peer.
bench-dgram: lib $(BINDIR)/bmi_mx_perf
	@mkdir -p $(BUILD)/bench
	$(BINDIR)/bmi_mx_perf all --port dgram --library $(LIBDIR)/libbmi_mx.so $(BENCH_FLAGS) | tee $(BUILD)/bench/dgram.txt

# Streams whose receiver writes the arrived data, in both directions, beside bare TCP: wall time, and processor time
# and sleeps of both sides, which hardly depend on other load. BENCH_FLAGS="--sizes 256K,1M,4M --volume 256".
bench-busy: lib $(BINDIR)/bmi_mx_perf
	$(BINDIR)/bmi_mx_perf busy --library $(LIBDIR)/libbmi_mx.so \
	    $(if $(PORT),--port $(PORT)) $(BENCH_FLAGS)

# Large messages over one data link and over four, each with a path of its own: mk/links.sh (root). RATE=1gbit
# SIZES=4M,16M,64M.
bench-links: lib $(BINDIR)/bmi_mx_perf
	mk/links.sh $(BINDIR) $(LIBDIR)/libbmi_mx.so
