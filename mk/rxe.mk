# An RDMA device in software: soft-RoCE of Debian 12's kernel, in a virtual machine (testing/rxe).
#
#   check-rxe     RXE_PARTS='files killed' chooses parts (testing/rxe/check.sh), RXE_SET='FI_UNIVERSE_SIZE=32' sets more in
#                 its environment. Without KVM the processor is emulated, and it takes tens of minutes
#   check-rxe-net check-net in the same machine, whose kernel has netem: NET_TESTS, PORT
#   rxe-syntax    only the syntax of the scripts: part of check
#
# The image is made once, by root, with a Debian mirror: half a gigabyte in $(RXE).

RXE          := $(BUILD)/rxe
RXE_COMMANDS := qemu-system-x86_64 debootstrap mke2fs
RXE_PACKAGES := qemu-system-x86 debootstrap e2fsprogs
RXE_LIMIT    ?= 7200
# Everything is as slow as the emulated processor.
RXE_SLOWER   ?= 3
RXE_PARTS    ?=
RXE_SET      ?=
RXE_PROGRAMS ?= messages large calls cancel reuse deaths restart
RXE_SCRIPTS  := $(wildcard testing/rxe/*.sh) testing/rxe/start testing/rxe/init

CHECK_TARGETS += rxe-syntax

.PHONY: check-rxe check-rxe-net rxe-syntax rxe-deps

rxe-syntax:
	@for script in $(RXE_SCRIPTS); do bash -n $$script || exit 1; done

rxe-deps:
	@mk/deps.sh $(RUST_MIN) "$(DEPS_COMMANDS) $(RXE_COMMANDS)" "$(DEPS_PACKAGES) $(RXE_PACKAGES)" "$(DEPS_FABRIC)" $(CARGO)

$(RXE)/image: testing/rxe/image.sh testing/rxe/init mk/bare_debian.sh | rxe-deps
	testing/rxe/image.sh $(RXE)

$(RXE)/mrclose: testing/rxe/mrclose.c | rxe-deps
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -o $@ $< -lfabric

$(RXE)/registrations: testing/rxe/registrations.c $(C_TESTS_HDRS) \
    $(addprefix $(C_TESTS_OUT)/support/,$(C_TESTS_HOST:=.o) ops_linked.o) | lib
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(C_TESTS_CFLAGS) -rdynamic -o $@ $< $(filter %.o,$^) $(C_TESTS_LINK) $(C_TESTS_LIBS)

rxe_machine = testing/rxe/machine.sh -t $(RXE_LIMIT) -l $(RXE)/logs -s $(CURDIR) $(RXE)

check-rxe: rxe-deps $(RXE)/image lib $(BINDIR)/bmi_fileserver $(BINDIR)/bmi_cp mx-info-names $(RXE)/mrclose $(RXE)/registrations \
    $(addprefix $(C_TESTS_OUT)/,$(RXE_PROGRAMS))
	$(rxe_machine) env RXE_SLOWER=$(RXE_SLOWER) PROGRAMS='$(RXE_PROGRAMS)' $(RXE_SET) \
	    testing/rxe/check.sh $(BUILD) $(RXE_PARTS)

check-rxe-net: rxe-deps $(RXE)/image lib examples $(BINDIR)/mx_shaper $(NET_PROGRAMS)
	$(rxe_machine) env C_TESTS_LIMIT=3000 C_TESTS_SLOWER=$(RXE_SLOWER) C_TESTS_JOBS=1 C_TESTS_BIN=$(abspath $(BINDIR)) \
	    C_TESTS_SHAPER=$(abspath $(BINDIR))/mx_shaper $(RXE_SET) \
	    $(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) '$(NET_PORTS)' $(NET_TESTS)
