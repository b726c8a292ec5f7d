# The dgram port with faults of its datagrams (MX_DGRAM_FAULTS): on any machine, without root.
#
#   dgram-check   part of check, which runs all tests over dgram without faults: those that find errors within
#                 a few seconds of faults, and sessions that begin over TCP and move to libfabric's datagrams
#   check-dgram   all tests, at each of DGRAM_HARMS; the file server, and random programs
#
# Every process applies the faults to the datagrams that it receives, so both directions have them. check-net tests
# bad links between namespaces, with their delays and queues.

DGRAM_HARM   ?= loss=0.01,dup=0.01,reorder=0.02,corrupt=0.001,seed=7
DGRAM_HARMS  ?= $(DGRAM_HARM) loss=0.05,dup=0.02,reorder=0.05,corrupt=0.005,seed=11
# All kinds of messages, and the ends of connections.
DGRAM_QUICK  := messages large calls threads testcalls cancel drop lifecycle
DGRAM_FABRIC := messages large restart deaths secret
# All programs except those that send nothing, and data_sessions, whose relay makes the faults and which counts the
# warnings of a log.
DGRAM_TESTS  ?= $(filter-out layout header_cxx fabric strangers_fabric fabric_crowd data_sessions,$(C_TESTS_ALL))

ifneq ($(filter dgram,$(PORTS)),)
CHECK_TARGETS += dgram-check
endif

.PHONY: dgram-check check-dgram

dgram-check: lib $(addprefix $(C_TESTS_OUT)/,$(DGRAM_QUICK) $(DGRAM_FABRIC))
	MX_DGRAM_FAULTS='$(DGRAM_HARM)' $(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) dgram $(DGRAM_QUICK)
ifneq ($(filter rdm,$(PORTS)),)
	MX_DGRAM_BACKEND=fabric $(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) dgram $(DGRAM_FABRIC)
endif

check-dgram: lib examples c-tests mx-tests $(BINDIR)/bmi_mx_torture
	@for harm in $(DGRAM_HARMS); do \
	    echo "== MX_DGRAM_FAULTS=$$harm"; \
	    export MX_DGRAM_FAULTS=$$harm; \
	    $(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) dgram $(DGRAM_TESTS) && \
	    $(C_TESTS_DIR)/run.sh $(MX_TESTS_OUT) $(LIBDIR) dgram $(MX_TESTS_PLAIN) && \
	    programs/fileserver/check.sh $(BUILD) dgram && \
	    $(TORTURE) --port dgram --seconds 60 || exit 1; \
	done
