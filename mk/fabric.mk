# libfabric's providers: the offers of each on this machine, and all tests that can run over it.

# fabric_mixed needs two providers to choose from, so it is not among C_TESTS_ALL.
C_TESTS_FABRIC := $(filter-out header_cxx,$(C_TESTS_ALL)) fabric_mixed

.PHONY: fabrics check-fabric fabric-stacks

fabrics: mx-info-names
	$(BINDIR)/mx_info fabrics

# MX_LIBFABRIC=file, with LIBFABRIC_INCLUDE=directory for its headers, tests another library.
check-fabric: PORTS := rdm
check-fabric: deps lib examples mx-info-names $(addprefix $(C_TESTS_OUT)/,$(C_TESTS_FABRIC))
	CARGO='$(CARGO)' C_TESTS='$(C_TESTS_FABRIC)' mk/check_fabric.sh $(BUILD)

# Measures the stack that libfabric's own calls take (docs/c-api.md), in bytes. PROVIDER= chooses a provider.
PROVIDER ?= tcp;ofi_rxm

$(C_TESTS_OUT)/fabric_stacks: $(C_TESTS_OUT)/fabric_stacks.o $(addprefix $(C_TESTS_OUT)/support/,$(C_TESTS_NOHOST:=.o) stacks.o)
	$(CC) -o $@ $^ -lfabric $(C_TESTS_LIBS)

fabric-stacks: $(C_TESTS_OUT)/fabric_stacks
	C_TESTS_STACKS='256 256' C_TESTS_STACKS_LOG=/dev/stdout $< '$(PROVIDER)' | $(stacks_table)
