# libfabric's providers: what each offers here, and everything that can be tested over it.

# Only where there are two providers to choose from: not among C_TESTS_ALL.
C_TESTS_FABRIC := $(filter-out header_cxx,$(C_TESTS_ALL)) fabric_mixed

.PHONY: fabrics check-fabric fabric-stacks

fabrics: mx-info-names
	$(BINDIR)/mx_info fabrics

# MX_LIBFABRIC=file, with LIBFABRIC_INCLUDE=directory for its headers, does it with another one.
check-fabric: PORTS := rdm
check-fabric: deps lib examples mx-info-names $(addprefix $(C_TESTS_OUT)/,$(C_TESTS_FABRIC))
	CARGO='$(CARGO)' C_TESTS='$(C_TESTS_FABRIC)' mk/check_fabric.sh $(BUILD)

# The stack that libfabric's own calls take (docs/c-api.md), in bytes. PROVIDER= chooses one.
PROVIDER ?= tcp;ofi_rxm

$(C_TESTS_OUT)/fabric_stacks: $(C_TESTS_OUT)/fabric_stacks.o $(addprefix $(C_TESTS_OUT)/support/,$(C_TESTS_NOHOST:=.o) stacks.o)
	$(CC) -o $@ $^ -lfabric $(C_TESTS_LIBS)

fabric-stacks: $(C_TESTS_OUT)/fabric_stacks
	C_TESTS_STACKS='256 256' C_TESTS_STACKS_LOG=/dev/stdout $< '$(PROVIDER)' | $(stacks_table)
