# Tests that take hours: each night, and before a release.
#
#   nightly   every part, even if others fail; the last line sums up. PARTS=nightly-goodput chooses
#
# Random tests with more seeds than in `check`, explorations one step deeper, and with the release libraries all C
# programs over all ports and random programs.

# Parts that are other targets with values of their own.
NIGHTLY_TARGETS := check-long c-check c-check-standalone mx-check check-asan nightly-soak nightly-goodput nightly-explore \
                   nightly-torture nightly-crowds

.PHONY: nightly nightly-soak nightly-goodput nightly-explore nightly-torture nightly-crowds

nightly: deps
	@$(MAKE) --no-print-directory parts NAME=$@ PARTS='$(or $(PARTS),$(NIGHTLY_TARGETS))'

nightly-soak:
	@$(MAKE) --no-print-directory soak SEEDS=5000

# Goodput and shares are measured over few seeds, because each takes seconds.
nightly-goodput:
	@$(MAKE) --no-print-directory soak SEEDS=4 ONLY='goodput:: leaves_a_quarter'

nightly-explore:
	@$(MAKE) --no-print-directory explore DEPTH=+1

nightly-torture:
	@$(MAKE) --no-print-directory torture MINUTES=10

# All call all at the same instant: 16 servers in 100 rounds, also with the ends of TCP connections swallowed (root),
# and 64 ranks of MX, a process each. One program at a time, because each has as many processes as the machine can
# hold.
nightly-crowds: export C_TESTS_JOBS := 1
nightly-crowds: export C_TESTS_LIMIT := 2000
nightly-crowds:
	@C_TESTS_ROUNDS=100 $(MAKE) --no-print-directory PORT='local tcp dgram' C_TESTS=calls c-check
	@C_TESTS_ROUNDS=100 $(MAKE) --no-print-directory PORT=tcp NETWORKS=crowd check-networks
	@C_TESTS_ROUNDS=3 $(MAKE) --no-print-directory PORT='local tcp dgram' MX_TESTS=ranks mx-check
