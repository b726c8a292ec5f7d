# libna_plugin_mx, tested from C without Mercury: cmocka programs under c_tests/na/, each run once per port.
#
#   na-check        all programs, all ports; the last line is "N passed, N failed"
#
# PORT=local, tcp, rdm or dgram chooses a port.

NA_TESTS_OUT    := $(BUILD)/c_tests/na
NA_TESTS        := table
NA_TESTS_HDRS   := $(wildcard $(C_TESTS_DIR)/na/support/*.h) $(C_TESTS_HDRS)
# Of all suites' support.
NA_TESTS_SHARED := $(addprefix $(C_TESTS_OUT)/support/,check.o ids.o port.o world.o)

CHECK_TARGETS   += na-check

.PHONY: na-tests na-check

$(NA_TESTS_OUT)/support/%.o: $(C_TESTS_DIR)/na/support/%.c $(NA_TESTS_HDRS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(C_TESTS_CFLAGS) -c -o $@ $<

$(NA_TESTS_OUT)/%.o: $(C_TESTS_DIR)/na/%.c $(NA_TESTS_HDRS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(C_TESTS_CFLAGS) -c -o $@ $<

# The plugin looks libna's functions up in the program: -rdynamic. It is opened by name.
$(addprefix $(NA_TESTS_OUT)/,$(NA_TESTS)): $(NA_TESTS_OUT)/%: $(NA_TESTS_OUT)/%.o $(NA_TESTS_OUT)/support/na.o $(NA_TESTS_SHARED) | lib
	$(CC) -rdynamic -o $@ $^ -Wl,-rpath,$(abspath $(LIBDIR)) $(C_TESTS_LIBS)

.PRECIOUS: $(NA_TESTS_OUT)/%.o $(NA_TESTS_OUT)/support/%.o

na-tests: $(addprefix $(NA_TESTS_OUT)/,$(NA_TESTS))

na-check: lib na-tests
	$(C_TESTS_DIR)/run.sh $(NA_TESTS_OUT) $(LIBDIR) '$(C_TESTS_PORTS)' $(NA_TESTS)
