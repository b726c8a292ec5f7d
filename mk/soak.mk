# Random programs on the simulated network, more of them than `make check` runs.
#
#   make soak SEEDS=20000           so many, from SIM_FIRST (default 1)
#   make soak SEED=17               only that one, with the log of a failure
#
# First the whole method (testing/method/sim/random.rs), then what mx-proto's own scenarios do on every
# network of the simulator, then ports over datagrams with any mixture of faults. At the end: how often each move between states of peers, and of
# operations, was made.

.PHONY: soak

SEEDS ?= 20000

soak_seeds = $(if $(SEED),SIM_SEED=$(SEED),SIM_SEEDS=$(SEEDS))

soak:
	$(soak_seeds) $(CARGO) test -q -p bmi-method --test sim -- --nocapture random::
	$(soak_seeds) $(CARGO) test -q -p mx-proto --test sim -- endpoint:: order:: strangers:: any_mixture
	@cat $(CARGO_TARGET)/tmp/moves.md $(CARGO_TARGET)/tmp/operations.md
