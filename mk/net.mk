# Networks that are bad, cut and crowded, between namespaces: needs root, ip and tc, so it is no part
# of check. Links are netem's where the kernel has it, else tools/mx_shaper's.
#
#   check-net   NET_TESTS=net_links chooses programs, PORT=dgram one port

NET_TESTS     ?= net net_links net_homes net_many net_files net_failures
NET_PORTS     := $(or $(PORT),tcp rdm dgram)
NET_PROGRAMS  := $(addprefix $(C_TESTS_OUT)/,$(NET_TESTS))
NET_SUPPORT   := net cable traffic

.PHONY: check-net $(BINDIR)/mx_shaper

$(BINDIR)/mx_shaper:
	@mkdir -p $(@D)
	$(CARGO) build --profile tools -p mx_shaper
	cp $(TOOLS_TARGET)/mx_shaper $@

$(NET_PROGRAMS): $(C_TESTS_OUT)/%: $(C_TESTS_OUT)/%.o \
    $(addprefix $(C_TESTS_OUT)/support/,$(C_TESTS_HOST:=.o) $(NET_SUPPORT:=.o) ops_linked.o) | lib
	$(CC) -rdynamic -o $@ $^ $(C_TESTS_LINK) $(C_TESTS_LIBS)

# The figures are what the programs print with four blanks before it.
check-net: lib examples $(BINDIR)/mx_shaper $(NET_PROGRAMS)
	@export C_TESTS_LIMIT=1500 C_TESTS_SHAPER='$(abspath $(BINDIR))/mx_shaper' \
	    C_TESTS_BIN='$(abspath $(BINDIR))'; \
	good=true; \
	$(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) '$(NET_PORTS)' $(NET_TESTS) || good=false; \
	for test in $(NET_TESTS); do \
	    for port in $(NET_PORTS); do \
	        cat $(C_TESTS_OUT)/logs/$$test-$$port*.log 2>/dev/null | grep '^    ' || true; \
	    done; \
	done; \
	$$good
