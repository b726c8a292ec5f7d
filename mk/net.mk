# Bad, interrupted and crowded networks between namespaces. Needs root, ip and tc, so check-net is not part of check.
# Links are netem's if the kernel has it, else testing/shaper.
#
#   check-net        NET_TESTS=net_links chooses programs, PORT=dgram one port
#   check-networks   machines with several networks, and ones that change: part of check, skipped without root;
#                    NETWORKS=crossing, PORT=auto

NET_TESTS     ?= net net_links net_machines net_many net_files net_failures
NET_PORTS     := $(or $(PORT),tcp rdm dgram)
NET_PROGRAMS  := $(addprefix $(C_TESTS_OUT)/,$(NET_TESTS))
NET_SUPPORT   := net cable traffic machines relay

NETWORKS      ?= networks changes crossing attempts crowd takeover
# Machines of different networks have no memory in common.
NETWORKS_PORTS := $(or $(PORT:local=auto),tcp dgram rdm auto)

CHECK_TARGETS += check-networks

.PHONY: check-net check-networks

$(NET_PROGRAMS) $(addprefix $(C_TESTS_OUT)/,$(NETWORKS)): $(C_TESTS_OUT)/%: $(C_TESTS_OUT)/%.o \
    $(addprefix $(C_TESTS_OUT)/support/,$(C_TESTS_HOST:=.o) $(NET_SUPPORT:=.o) ops_linked.o) | lib
	$(CC) -rdynamic -o $@ $^ $(C_TESTS_LINK) $(C_TESTS_LIBS)

# The figures are the lines that the programs print with four leading blanks.
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

check-networks: lib $(addprefix $(C_TESTS_OUT)/,$(NETWORKS))
	$(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) '$(NETWORKS_PORTS)' $(NETWORKS)
