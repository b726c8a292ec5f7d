# libfabric's providers: what each offers here, and everything that can be tested over it.

# Only where there are two providers to choose from: not among C_TESTS_ALL.
C_TESTS_FABRIC := $(filter-out gossip header_cxx,$(C_TESTS_ALL)) fabric_mixed

.PHONY: fabrics check-fabric

fabrics: mx-info-names
	$(BINDIR)/mx_info fabrics

# MX_LIBFABRIC=file, with LIBFABRIC_INCLUDE=directory for its headers, does it with another one.
check-fabric: PORTS := rdm
check-fabric: deps lib examples mx-info-names $(addprefix $(C_TESTS_OUT)/,$(C_TESTS_FABRIC))
	CARGO='$(CARGO)' C_TESTS='$(C_TESTS_FABRIC)' mk/check_fabric.sh $(BUILD)
