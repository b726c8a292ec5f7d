# libmyriexpress, tested from C: cmocka programs under c_tests/mx/, each run once per port, with the same support and
# runner as those of c_tests.mk.
#
#   mx-check        all programs, all ports; the last line is "N passed, N failed"
#   check-asan      runs them too
#
# MX_TESTS=name... chooses programs, PORT=local, tcp, rdm or dgram one port.

MX_TESTS_OUT     := $(BUILD)/c_tests/mx
MX_TESTS_HDRS    := $(wildcard $(C_TESTS_DIR)/mx/support/*.h) $(C_TESTS_HDRS) \
                    include/myriexpress.h $(wildcard include/mx_*.h include/mx_internals/*.h)
MX_TESTS_LINK    := -L$(LIBDIR) -lmyriexpress -Wl,-rpath,$(abspath $(LIBDIR))
# Support that both suites use, and this suite's own.
MX_TESTS_SHARED  := pattern port memory limit workers stacks check ids world
MX_TESTS_OWN     := party mx stacks
# The functions of mx/support/stacks.c.
MX_TESTS_WRAP    := $(shell sed -n 's/^\(LARGE\|SMALL\)(\(mx_[a-z_0-9]*\))$$/-Wl,--wrap=\2/p' $(C_TESTS_DIR)/mx/support/stacks.c)

MX_TESTS_PLAIN   := ranks cancelled fork requests lifecycle args messages connect handler threads info names
# Programs with both libraries.
MX_TESTS_BOTH    := together c_method
MX_TESTS_ALL     := $(MX_TESTS_PLAIN) layout header_cxx $(MX_TESTS_BOTH)
MX_TESTS         ?= $(MX_TESTS_ALL)
# Not for the library, which warns of settings that it does not know.
unexport MX_TESTS

CHECK_TARGETS    += mx-check

.PHONY: mx-tests mx-check mx-check-asan

# $(1) directory of c_tests.mk's objects, $(2) extra flags.
define mx_tests_rules
$(1)/mx/support/%.o: $(C_TESTS_DIR)/mx/support/%.c $$(MX_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -c -o $$@ $$<

$(1)/mx/%.o: $(C_TESTS_DIR)/mx/%.c $$(MX_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -c -o $$@ $$<

$(1)/mx/header_c99.o: $(C_TESTS_DIR)/mx/header_c99.c $$(MX_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) -std=c99 -Wall -Wextra -Werror -pedantic -Iinclude -c -o $$@ $$<

$(1)/mx/header_cxx: $(C_TESTS_DIR)/mx/header_cxx.cpp $$(MX_TESTS_HDRS) | lib
	@mkdir -p $$(@D)
	$$(CXX) $$(CFLAGS) -std=c++17 -Wall -Wextra -Werror -pedantic -Iinclude $(2) -o $$@ $$< \
	    $$(MX_TESTS_LINK)

$(1)/mx/layout: $(1)/mx/layout.o $(1)/mx/header_c99.o | lib
	$$(CC) $(2) -o $$@ $$^ $$(MX_TESTS_LINK) $$(C_TESTS_LIBS)

$(addprefix $(1)/mx/,$(MX_TESTS_PLAIN)): $(1)/mx/%: $(1)/mx/%.o \
    $(addprefix $(1)/mx/support/,$(MX_TESTS_OWN:=.o)) \
    $(addprefix $(1)/support/,$(MX_TESTS_SHARED:=.o)) | lib
	$$(CC) $(2) $$(MX_TESTS_WRAP) -o $$@ $$^ $$(MX_TESTS_LINK) $$(C_TESTS_LIBS)

# Both libraries, and the small host of the BMI suite; -rdynamic as there.
$(addprefix $(1)/mx/,$(MX_TESTS_BOTH)): $(1)/mx/%: $(1)/mx/%.o \
    $(addprefix $(1)/mx/support/,$(MX_TESTS_OWN:=.o)) \
    $(addprefix $(1)/support/,$(MX_TESTS_SHARED:=.o) host.o op.o stacks_table.o ops_linked.o) | lib
	$$(CC) $(2) $$(MX_TESTS_WRAP) -rdynamic -o $$@ $$^ $$(C_TESTS_LINK) $$(MX_TESTS_LINK) $$(C_TESTS_LIBS)
endef

$(eval $(call mx_tests_rules,$(C_TESTS_OUT),))
$(eval $(call mx_tests_rules,$(C_TESTS_OUT)-asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined))

.PRECIOUS: $(C_TESTS_OUT)/mx/%.o $(C_TESTS_OUT)/mx/support/%.o \
           $(C_TESTS_OUT)-asan/mx/%.o $(C_TESTS_OUT)-asan/mx/support/%.o

mx-tests: $(addprefix $(MX_TESTS_OUT)/,$(MX_TESTS))

mx-check: lib mx-tests
	$(C_TESTS_DIR)/run.sh $(MX_TESTS_OUT) $(LIBDIR) '$(C_TESTS_PORTS)' $(MX_TESTS)

mx-check-asan: lib $(addprefix $(C_TESTS_OUT)-asan/mx/,$(filter-out $(C_TESTS_SHORT),$(MX_TESTS)))
	C_TESTS_UNDER=asan $(C_TESTS_DIR)/run.sh $(C_TESTS_OUT)-asan/mx $(LIBDIR) \
	    '$(C_TESTS_CHECKED)' $(filter-out $(C_TESTS_SHORT),$(MX_TESTS))

check-asan: mx-check-asan
