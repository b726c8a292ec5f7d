# The network is cut and heals, between namespaces: needs root and ip, so it is no part of check.

.PHONY: check-net

check-net: PORTS := $(or $(PORT),tcp rdm)
check-net: lib $(C_TESTS_OUT)/net
	$(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) '$(PORTS)' net || \
	    { grep -h '^    ' $(PORTS:%=$(C_TESTS_OUT)/logs/net-%*.log); exit 1; }
	@grep -h '^    ' $(PORTS:%=$(C_TESTS_OUT)/logs/net-%*.log)
