# libna_plugin_mx, tested from C without Mercury: cmocka programs under c_tests/na/, each run once per port.
#
#   na-check        all programs, all ports; the last line is "N passed, N failed"
#   check-asan      runs them too
#
# PORT=local, tcp, rdm or dgram chooses a port.

NA_TESTS        := table
NA_TESTS_HDRS   := $(wildcard $(C_TESTS_DIR)/na/support/*.h) $(C_TESTS_HDRS)

CHECK_TARGETS   += na-check

.PHONY: na-tests na-check na-check-asan

# $(call na_tests_rules,DIRECTORY,FLAGS): objects of the suite's own, and of the support of all suites
# (mk/c_tests.mk). The plugin looks up libna's functions in the program, so -rdynamic. It is opened by name.
define na_tests_rules
$(1)/na/%.o: $(C_TESTS_DIR)/na/%.c $$(NA_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -c -o $$@ $$<

$(addprefix $(1)/na/,$(NA_TESTS)): $(1)/na/%: $(1)/na/%.o $(1)/na/support/na.o \
    $(addprefix $(1)/support/,check.o ids.o port.o world.o) | lib
	$$(CC) $(2) -rdynamic -o $$@ $$^ -Wl,-rpath,$$(abspath $$(LIBDIR)) $$(C_TESTS_LIBS)
endef

$(eval $(call na_tests_rules,$(C_TESTS_OUT),))
$(eval $(call na_tests_rules,$(C_TESTS_OUT)-asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined))

.PRECIOUS: $(C_TESTS_OUT)/na/%.o $(C_TESTS_OUT)/na/support/%.o \
           $(C_TESTS_OUT)-asan/na/%.o $(C_TESTS_OUT)-asan/na/support/%.o

na-tests: $(addprefix $(C_TESTS_OUT)/na/,$(NA_TESTS))

na-check: lib na-tests
	$(C_TESTS_DIR)/run.sh $(C_TESTS_OUT)/na $(LIBDIR) '$(C_TESTS_PORTS)' $(NA_TESTS)

na-check-asan: lib $(addprefix $(C_TESTS_OUT)-asan/na/,$(NA_TESTS))
	C_TESTS_UNDER=asan $(C_TESTS_DIR)/run.sh $(C_TESTS_OUT)-asan/na $(LIBDIR) '$(C_TESTS_CHECKED)' $(NA_TESTS)

check-asan: na-check-asan
