# Every order of a few steps, on the real endpoint and the real method.
#
#   make explore DEPTH=6              six steps in each exploration; without it as many as in check
#   make explore DEPTH=+1             one more than in check
#   make explore DEPTH=6 ONLY=crossed only explorations with this in their names
#   THREADS=8                         on 8 threads (default 2)
#
# One more step takes three to eight times as long with two nodes, six to fifteen times with three. How to read and
# replay an order that fails: testing/sim/README.md.

.PHONY: explore

explore:
	EXPLORE_DEPTH=$(DEPTH) EXPLORE_THREADS=$(THREADS) \
	    $(CARGO) test -q -p mx-proto -p bmi-method --test sim -- --nocapture $(or $(ONLY),every_order)
