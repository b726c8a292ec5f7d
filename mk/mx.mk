# The programs for MX: mx_pingpong and mx_stream in C over the public headers, and mx_info for boards, endpoints and
# counters.

MX_PERF_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Werror -pedantic -Iinclude -Iprograms
MX_PERF_SRCS   := $(sort $(wildcard programs/mx_perf/*.c))
MX_PERF_HDRS   := $(wildcard programs/mx_perf/*.h) $(wildcard include/mx_*.h) include/myriexpress.h
MX_PERF_BIN    := $(BINDIR)/mx_pingpong $(BINDIR)/mx_stream

BIN_TARGETS    += $(MX_PERF_BIN)

$(MX_PERF_BIN): $(BINDIR)/%: programs/%.c $(MX_PERF_SRCS) $(MX_PERF_HDRS) | lib
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(MX_PERF_CFLAGS) $(LDFLAGS) -o $@ $< $(MX_PERF_SRCS) -L$(LIBDIR) -lmyriexpress $(RPATH)

# mx_info, in Rust, and its older names.
MX_INFO := $(BINDIR)/mx_info

BIN_TARGETS += mx-info-names

.PHONY: mx-info-names

mx-info-names: $(MX_INFO)
	@for name in $(MX_INFO_NAMES); do ln -sfn mx_info $(BINDIR)/$$name; done

# Tests all of them: over each port, beside each other, and with invalid arguments.
CHECK_TARGETS += mx-tools-check

.PHONY: mx-tools-check

mx-tools-check: lib $(MX_PERF_BIN) mx-info-names
	programs/mx_info/check.sh $(BUILD) '$(PORTS)'
