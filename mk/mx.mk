# The programs for MX: mx_pingpong and mx_stream in C over the public headers, and those that look
# at boards, endpoints and counters.

MX_PERF_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Werror -pedantic -Iinclude -Iprograms
MX_PERF_SRCS   := $(sort $(wildcard programs/mx_perf/*.c))
MX_PERF_HDRS   := $(wildcard programs/mx_perf/*.h) $(wildcard include/mx_*.h) include/myriexpress.h
MX_PERF_BIN    := $(BINDIR)/mx_pingpong $(BINDIR)/mx_stream

BIN_TARGETS    += $(MX_PERF_BIN)

# Found beside the program, in the build directory as where it is installed; RPATH= leaves it to the loader.
RPATH ?= -Wl,-rpath,'$$ORIGIN/../lib'

$(MX_PERF_BIN): $(BINDIR)/%: programs/%.c $(MX_PERF_SRCS) $(MX_PERF_HDRS) | lib
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(MX_PERF_CFLAGS) $(LDFLAGS) -o $@ $< $(MX_PERF_SRCS) -L$(LIBDIR) -lmyriexpress $(RPATH)

# The programs that look, in Rust.
MX_TOOLS := $(addprefix $(BINDIR)/,mx_info mx_endpoint_info mx_counters)

BIN_TARGETS += $(MX_TOOLS)

.PHONY: mx-tools $(MX_TOOLS)

$(MX_TOOLS): mx-tools

mx-tools:
	@mkdir -p $(BINDIR)
	$(CARGO) build --profile tools -p mx_tools
	cp $(addprefix $(TOOLS_TARGET)/,$(notdir $(MX_TOOLS))) $(BINDIR)/

# All five, at work: over each port, beside each other, and told nonsense.
CHECK_TARGETS += mx-tools-check

.PHONY: mx-tools-check

mx-tools-check: lib $(MX_PERF_BIN) $(MX_TOOLS)
	programs/mx_info/check.sh $(BUILD) '$(PORTS)'
