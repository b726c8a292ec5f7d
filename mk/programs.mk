# The C file server and its client: once with dlopen, once linked through pkg-config. Remote procedure calls over the
# stand-alone BMI: with a loader, and with BMI=prefix (bmi.h in include, libbmi in lib) over that library.

PROGRAMS_DIR    := programs/fileserver
PROGRAMS_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Werror -Iinclude
PROGRAMS_DEPS   := $(PROGRAMS_DIR)/protocol.h programs/method.h programs/method.c include/bmi_mx.h
PROGRAMS_BIN    := $(BINDIR)/bmi_fileserver $(BINDIR)/bmi_cp $(BINDIR)/bmi_rpc
PROGRAMS_LINKED := $(BUILD)/examples/bmi_fileserver-linked $(BUILD)/examples/bmi_cp-linked \
                   $(if $(BMI),$(BUILD)/examples/bmi_rpc-host)

BIN_TARGETS     += examples
CHECK_TARGETS   += examples-check

.PHONY: examples examples-check run

examples: $(PROGRAMS_BIN) $(PROGRAMS_LINKED)

$(BINDIR)/%: $(PROGRAMS_DIR)/%.c $(PROGRAMS_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(PROGRAMS_CFLAGS) $(LDFLAGS) -o $@ $< programs/method.c -ldl -lxxhash $(RPATH)

RPC_DEPS        := programs/method.h programs/method.c include/bmi_mx_standalone.h

$(BINDIR)/bmi_rpc: programs/rpc/bmi_rpc.c programs/rpc/bmi.h $(RPC_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(PROGRAMS_CFLAGS) -DMETHOD_STANDALONE -Iprograms/rpc $(LDFLAGS) -o $@ $< \
	    programs/method.c -ldl $(RPATH)

$(BUILD)/examples/bmi_rpc-host: programs/rpc/bmi_rpc.c $(BMI)/include/bmi.h | lib
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -std=c11 -O2 -g -Wall -Wextra -Werror -I$(BMI)/include -o $@ $< -L$(BMI)/lib -lbmi \
	    -L$(LIBDIR) -lbmi_mx_standalone -Wl,-rpath,$(BMI)/lib:$(abspath $(LIBDIR))

# The flags come only from pkg-config, through a .pc file that points into the build directory.
$(BUILD)/examples/bmi_mx.pc: pkgconfig/bmi_mx.pc.in | lib
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(CURDIR)|' -e 's|@LIBDIR@|$(abspath $(LIBDIR))|' \
	    -e 's|@INCLUDEDIR@|$(CURDIR)/include|' -e 's|@VERSION@|$(VERSION)|' $< > $@

$(BUILD)/examples/%-linked: $(PROGRAMS_DIR)/%.c $(PROGRAMS_DEPS) $(BUILD)/examples/bmi_mx.pc | lib
	$(CC) $(CFLAGS) -std=c11 -O2 -g -Wall -Wextra -Werror -DMETHOD_LINKED -o $@ $< \
	    programs/method.c -lxxhash \
	    $$(PKG_CONFIG_PATH=$(BUILD)/examples pkg-config --cflags --libs bmi_mx) \
	    -Wl,-rpath,$(abspath $(LIBDIR))

examples-check: lib examples
	programs/fileserver/check.sh $(BUILD) '$(PORTS)'
	programs/rpc/check.sh $(BUILD) '$(PORTS)'
	programs/mercury/check.sh $(BUILD) '$(PORTS)' '$(CC)'

# The example: a file that is copied both ways, over shared memory and over TCP, or over the ports in PORT=. FILE=
# names a file.
run: PORTS := $(or $(PORT),local tcp)
run: LIBRARIES := bmi_mx
run: deps lib $(BINDIR)/bmi_fileserver $(BINDIR)/bmi_cp
	PORT='$(PORTS)' programs/fileserver/run.sh $(BUILD) $(FILE)
