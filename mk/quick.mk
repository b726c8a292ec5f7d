# The short tests, for use while a change is being made.
#
#   quick      formatting, lints, header, unit tests, those of the endpoint, three C programs over local

.PHONY: quick

quick: deps fmt clippy header-check
	$(CARGO) test -q --workspace --exclude gen_header --lib
	$(CARGO) test -q -p mx-proto --test endpoint
	$(MAKE) --no-print-directory PROFILE=dev BUILD=$(BUILD)/check LIBRARIES=bmi_mx PORT=local \
	    C_TESTS='args messages cancel' c-check
	@echo "quick: left out are the other libraries, ports and C programs, integration tests, rustdoc, examples and tools;"
	@echo "quick: make check and make check-long run them all"

# Prints the table of CONTRIBUTING.md, from clean clones. TARGETS="run .ci/run" chooses.
.PHONY: times

times:
	mk/times.sh $(BUILD)/times $(TARGETS)
