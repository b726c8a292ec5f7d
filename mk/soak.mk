# Random programs on the simulated network, more of them than in `make check`.
#
#   make soak SEEDS=20000           20000 of them, from SIM_FIRST (default 1)
#   make soak SEED=17               only this one, with the log of a failure
#   make soak SEEDS=4 ONLY=goodput  only mx-proto's scenarios with this in their names
#
# First the whole method (testing/method/sim/random.rs), then mx-proto's own scenarios on every network of the
# simulator, then ports over datagrams with any mixture of faults. At the end: how often each move between states of
# peers, and of operations, was made.

.PHONY: soak

SEEDS ?= 20000

soak_seeds = $(if $(SEED),SIM_SEED=$(SEED),SIM_SEEDS=$(SEEDS))

soak:
ifndef ONLY
	$(soak_seeds) $(CARGO) test -q -p bmi-method --test sim -- --nocapture random::
	$(soak_seeds) $(CARGO) test -q -p mx-proto --test endpoint -- whatever_crosses
endif
	$(soak_seeds) $(CARGO) test -q -p mx-proto --test sim -- $(or $(ONLY),endpoint:: order:: strangers:: introductions:: roaming:: any_mixture)
ifndef ONLY
	@cat $(CARGO_TARGET)/tmp/moves.md $(CARGO_TARGET)/tmp/operations.md
endif
