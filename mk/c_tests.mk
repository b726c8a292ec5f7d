# The C interface, tested from C: cmocka programs under c_tests/bmi/, each run once per port.
#
#   c-check         all programs but the slow ones, all ports; the last line is "N passed, N failed"
#   c-check-long    the slow ones, whose tests wait for seconds
#   c-check-standalone   those whose result may differ with the table of the stand-alone BMI, over local
#   check-asan      the same with the C side under -fsanitize=address,undefined, and leak checks
#   check-valgrind  the same under valgrind
#
# C_TESTS=name... chooses programs, PORT=local, tcp, rdm or dgram one port.

comma           := ,
C_TESTS_DIR     := c_tests
C_TESTS_OUT     := $(BUILD)/c_tests
# Scenarios, threads and callbacks have the parameters of their kind, used or not.
C_TESTS_CFLAGS  := -std=c11 -O1 -g -Wall -Wextra -Wno-unused-parameter -Werror -pedantic -Iinclude
C_TESTS_HDRS    := $(wildcard $(C_TESTS_DIR)/support/*.h) include/bmi_mx.h include/bmi_mx_standalone.h
C_TESTS_LIBS    := -lcmocka -ldl -lpthread
# Compilers for Arm let programs copy a library's data only when they are not PIE.
C_TESTS_COPIED  := $(if $(filter aarch64%,$(shell $(CC) -dumpmachine)),no-pie,pie)
C_TESTS_LINK    := -L$(LIBDIR) -lbmi_mx -Wl,-rpath,$(abspath $(LIBDIR))

# All programs except no_host.c contain the small host of support/, which the library finds by dlsym because of
# -rdynamic.
C_TESTS_HOST    := host op pair pattern port wire datagram stage crowd service siege intruder attack cleanup_check bulk \
                   memory limit secret_file user log wait_children workers stacks stacks_table codes check ids world
C_TESTS_NOHOST  := codes check ids world
C_TESTS_HOSTLESS := $(C_TESTS_NOHOST) port hostless

# The slowest begin first.
C_TESTS_PLAIN   := finalize cancelled impostors data_links data_sessions strangers_crowds fork strangers wakeups \
                   args addresses binding messages counters testcalls large calls threads cancel drop \
                   lifecycle process deaths memory_after_load restart reuse strangers_memory strangers_credits \
                   strangers_datagrams versions claims secret users stderr interposed shortage fabric \
                   strangers_fabric fabric_crowd filesize no_syscalls descriptors
C_TESTS_ALL     := $(C_TESTS_PLAIN) layout header_cxx table_copied table_linked table_dlopen no_host \
                   set_host set_host_bare messages_dlopen host_process_dlopen hosts releases
C_TESTS_LONG    := shortage restart drop deaths memory_after_load
# These test code above the ports, and a process over rdm takes about fifteen times the processor's time: check runs
# them over the other ports, .ci/run over all.
C_TESTS_ABOVE   := args addresses binding counters impostors process users secret filesize messages_dlopen host_process_dlopen \
                   strangers_memory strangers_datagrams
C_TESTS_PORTS   ?= $(PORTS)
# Not under a checker: it takes more memory than they leave and ends the process without, or keeps freed memory, or
# does not know libraries that are opened by name, or replaces the same functions.
C_TESTS_SHORT   := shortage strangers_crowds memory_after_load hosts interposed
# Not under valgrind, whose own files may not grow there: SIGXFSZ ends it.
C_TESTS_FILES   := filesize
# Under a checker rdm runs only when asked for, because the checker would mostly look at libfabric.
C_TESTS_CHECKED := $(or $(PORT),local tcp)

# The programs that the caller chose, or all of these.
c_tests_of       = $(or $(C_TESTS),$(1))

CHECK_TARGETS      += c-check c-check-standalone
CHECK_LONG_TARGETS += c-check-long

# Counts system calls of a wake-up, with strace.
bench-syscalls: lib $(C_TESTS_OUT)/wakeups
	@for port in $(filter-out rdm dgram,$(PORTS)); do \
	    MX_PORT=$$port LD_LIBRARY_PATH=$(LIBDIR) $(C_TESTS_OUT)/wakeups; \
	done

# Measures the most stack that each call takes in the C programs of both libraries, in bytes (docs/c-api.md). All
# users may write the file of measurements, because tests become other users. Programs are left out that measure
# things which writing the file changes: system calls, memory, files that may not grow.
STACKS           := $(BUILD)/stacks
STACKS_DISTURBED := wakeups shortage memory_after_load filesize stderr
stacks_table = awk '$$2 > most[$$1] { most[$$1] = $$2; test[$$1] = $$3 } END { for (call in most) print call, most[call], test[call] }' | \
    sort -k 2,2nr

call-stacks: lib c-tests mx-tests
	@install -m 666 /dev/null $(STACKS)
	@export C_TESTS_STACKS='256 256' C_TESTS_STACKS_LOG='$(abspath $(STACKS))'; \
	$(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) '$(C_TESTS_PORTS)' $(filter-out $(STACKS_DISTURBED),$(call c_tests_of,$(C_TESTS_ALL))); \
	$(C_TESTS_DIR)/run.sh $(MX_TESTS_OUT) $(LIBDIR) '$(C_TESTS_PORTS)' $(MX_TESTS)
	@cat $(STACKS) | $(stacks_table)

.PHONY: bench-syscalls call-stacks c-tests c-check c-check-long c-check-standalone check-asan check-valgrind

# Built plain, under sanitizers, and for the stand-alone BMI. $(1) directory, $(2) extra flags, $(3) library, $(4)
# more of support/.
define c_tests_rules
$(1)/support/%.o: $(C_TESTS_DIR)/support/%.c $$(C_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -c -o $$@ $$<

$(1)/%.o: $(C_TESTS_DIR)/bmi/%.c $$(C_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -c -o $$@ $$<

$(1)/%.o: $(C_TESTS_DIR)/net/%.c $$(C_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -c -o $$@ $$<

$(1)/header_c99.o: $(C_TESTS_DIR)/bmi/header_c99.c include/bmi_mx.h
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) -std=c99 -Wall -Wextra -Werror -pedantic -Iinclude -c -o $$@ $$<

$(1)/header_cxx: $(C_TESTS_DIR)/bmi/header_cxx.cpp include/bmi_mx.h | lib
	@mkdir -p $$(@D)
	$$(CXX) $$(CFLAGS) -std=c++17 -Wall -Wextra -Werror -pedantic -Iinclude $(2) -o $$@ $$< \
	    $(C_TESTS_LINK:-lbmi_mx=-l$(3))

$(1)/layout: $(1)/layout.o $(1)/header_c99.o | lib
	$$(CC) $(2) -o $$@ $$< $(C_TESTS_LINK:-lbmi_mx=-l$(3)) $$(C_TESTS_LIBS)

# Without -rdynamic: programs that are no host.
$(1)/no_host $(1)/set_host_bare: $(1)/%: $(addprefix $(1)/support/,$(C_TESTS_HOSTLESS:=.o) ops_dlopen.o)
	$$(CC) $(2) -o $$@ $$^ $$(C_TESTS_LIBS)

$(1)/no_host: $(1)/no_host.o
$(1)/set_host_bare: $(1)/set_host.o

# Without the small host, but with a logger of its own.
$(1)/set_host: $(1)/set_host.o \
    $(addprefix $(1)/support/,$(C_TESTS_HOSTLESS:=.o) ops_linked.o) | lib
	$$(CC) $(2) -rdynamic -o $$@ $$^ $(C_TESTS_LINK:-lbmi_mx=-l$(3)) $$(C_TESTS_LIBS)

$(1)/%_dlopen: $(1)/%.o $(addprefix $(1)/support/,$(C_TESTS_HOST:=.o) $(4) ops_dlopen.o)
	$$(CC) $(2) -rdynamic -o $$@ $$^ $$(C_TESTS_LIBS)

# Like pvfs2-server: not PIC, so that the table is copied into the program.
$(1)/table_copied.o: $(C_TESTS_DIR)/bmi/table.c $$(C_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) $(if $(filter pie,$(C_TESTS_COPIED)),-fPIE,-fno-pie) -DTABLE_COPIED -c -o $$@ $$<

$(1)/table_copied: $(1)/table_copied.o \
    $(addprefix $(1)/support/,$(C_TESTS_HOST:=.o) ops_linked.o) | lib
	$$(CC) $(2) -$(C_TESTS_COPIED) -rdynamic -o $$@ $$^ $(C_TESTS_LINK:-lbmi_mx=-l$(3)) $$(C_TESTS_LIBS)
	readelf -rW $$@ | grep -q 'R_[A-Z0-9_]*_COPY .*bmi_mx_ops'

# Like libpvfs2.so: PIC, so that the table stays where it is.
$(1)/table_linked.o: $(C_TESTS_DIR)/bmi/table.c $$(C_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -fPIC -DTABLE_LINKED -c -o $$@ $$<

$(1)/support/ops_linked_pic.o: $(C_TESTS_DIR)/support/ops_linked.c $$(C_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -fPIC -c -o $$@ $$<

$(1)/table_linked: $(1)/table_linked.o \
    $(addprefix $(1)/support/,$(C_TESTS_HOST:=.o) ops_linked_pic.o) | lib
	$$(CC) $(2) -rdynamic -o $$@ $$^ $(C_TESTS_LINK:-lbmi_mx=-l$(3)) $$(C_TESTS_LIBS)

$(addprefix $(1)/,$(C_TESTS_PLAIN) fabric_mixed standalone releases): $(1)/%: $(1)/%.o \
    $(addprefix $(1)/support/,$(C_TESTS_HOST:=.o) $(4) ops_linked.o) | lib
	$$(CC) $(2) -rdynamic -o $$@ $$^ $(C_TESTS_LINK:-lbmi_mx=-l$(3)) $$(C_TESTS_LIBS)

$(1)/interposed: $(1)/support/interposer.o
$(1)/no_syscalls $(1)/users: $(1)/support/syscalls.o

# A host as a library, with callbacks of its own (hosts.c).
$(1)/half.so: $(C_TESTS_DIR)/bmi/hosts_second.c $(patsubst %.o,$(C_TESTS_DIR)/support/%.c,host.o op.o pattern.o stacks.o stacks_table.o $(4)) \
    $(C_TESTS_DIR)/bmi/hosts_second.h $$(C_TESTS_HDRS)
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(C_TESTS_CFLAGS) $(2) -fPIC -shared -Wl,-Bsymbolic -o $$@ $$(filter %.c,$$^) -lpthread
endef

$(eval $(call c_tests_rules,$(C_TESTS_OUT),,bmi_mx))
$(eval $(call c_tests_rules,$(C_TESTS_OUT)-asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined,bmi_mx))

# Sources whose result depends on the table or on the host (libraries/bmi_mx_standalone), over the table of the
# stand-alone BMI (support/standalone.h), and those for calls that only this table has. The code below the table is
# the same.
C_TESTS_ALONE   := $(C_TESTS_OUT)-standalone
C_ALONE         ?= standalone messages_dlopen addresses args binding cancel claims counters lifecycle \
                   testcalls stderr

$(C_TESTS_ALONE)/support/ops_%.o: C_TESTS_CFLAGS += -DC_TESTS_OWN_TABLE -Dthe_ops=the_table
$(eval $(call c_tests_rules,$(C_TESTS_ALONE),-DBMI_MX_STANDALONE,bmi_mx_standalone,standalone.o))

# Both hosts in one process.
$(C_TESTS_OUT)/half_orangefs.so: $(C_TESTS_OUT)/half.so
	cp $< $@

$(C_TESTS_OUT)/half_standalone.so: $(C_TESTS_ALONE)/half.so
	cp $< $@

$(C_TESTS_OUT)/hosts: $(C_TESTS_OUT)/hosts.o $(addprefix $(C_TESTS_OUT)/support/,$(C_TESTS_NOHOST:=.o)) \
    $(C_TESTS_OUT)/half_orangefs.so $(C_TESTS_OUT)/half_standalone.so
	$(CC) -rdynamic -o $@ $(filter %.o,$^) $(C_TESTS_LIBS) -Wl,-rpath,$(abspath $(C_TESTS_OUT))

# Shared by several programs.
.PRECIOUS: $(C_TESTS_OUT)/%.o $(C_TESTS_OUT)/support/%.o \
           $(C_TESTS_OUT)-asan/%.o $(C_TESTS_OUT)-asan/support/%.o

c-tests: $(addprefix $(C_TESTS_OUT)/,$(call c_tests_of,$(C_TESTS_ALL)))

c-check: lib c-tests
	$(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) '$(C_TESTS_PORTS)' \
	    $(call c_tests_of,$(filter-out $(C_TESTS_LONG),$(C_TESTS_ALL)))

c-check-long: lib c-tests
	$(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) '$(C_TESTS_PORTS)' $(call c_tests_of,$(C_TESTS_LONG))

# Ports do not know their host, so one of them is enough.
c-check-standalone: lib $(addprefix $(C_TESTS_ALONE)/,$(C_ALONE))
	C_TESTS_LIBRARY=bmi_mx_standalone $(C_TESTS_DIR)/run.sh $(C_TESTS_ALONE) $(LIBDIR) \
	    '$(or $(PORT),local)' $(C_ALONE)

c_tests_checked = $(filter-out $(C_TESTS_SHORT),$(call c_tests_of,$(C_TESTS_ALL)))

check-asan: lib $(addprefix $(C_TESTS_OUT)-asan/,$(c_tests_checked))
	C_TESTS_UNDER=asan $(C_TESTS_DIR)/run.sh $(C_TESTS_OUT)-asan $(LIBDIR) \
	    '$(C_TESTS_CHECKED)' $(c_tests_checked)

check-valgrind: lib c-tests
	C_TESTS_UNDER=valgrind $(C_TESTS_DIR)/run.sh $(C_TESTS_OUT) $(LIBDIR) \
	    '$(C_TESTS_CHECKED)' $(filter-out $(C_TESTS_FILES),$(c_tests_checked))
