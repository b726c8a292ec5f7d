# The C file server and its client: once with dlopen, once linked through pkg-config.

EXAMPLES_DIR    := examples/fileserver
EXAMPLES_CFLAGS := -std=c11 -O2 -g -Wall -Wextra -Werror -Iinclude
EXAMPLES_DEPS   := $(EXAMPLES_DIR)/protocol.h $(EXAMPLES_DIR)/method.h $(EXAMPLES_DIR)/method.c \
                   include/bmi_mx.h
EXAMPLES_BIN    := $(BINDIR)/bmi_fileserver $(BINDIR)/bmi_cp
EXAMPLES_LINKED := $(BUILD)/examples/bmi_fileserver-linked $(BUILD)/examples/bmi_cp-linked

BIN_TARGETS     += examples
CHECK_TARGETS   += examples-check

.PHONY: examples examples-check run

examples: $(EXAMPLES_BIN) $(EXAMPLES_LINKED)

$(BINDIR)/%: $(EXAMPLES_DIR)/%.c $(EXAMPLES_DEPS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(EXAMPLES_CFLAGS) $(LDFLAGS) -o $@ $< $(EXAMPLES_DIR)/method.c -ldl -lxxhash

# The flags come from pkg-config only, through a .pc file that points into the build directory.
$(BUILD)/examples/bmi_mx.pc: pkgconfig/bmi_mx.pc.in | lib
	@mkdir -p $(@D)
	sed -e 's|@PREFIX@|$(CURDIR)|' -e 's|@LIBDIR@|$(abspath $(LIBDIR))|' \
	    -e 's|@INCLUDEDIR@|$(CURDIR)/include|' -e 's|@VERSION@|$(VERSION)|' $< > $@

$(BUILD)/examples/%-linked: $(EXAMPLES_DIR)/%.c $(EXAMPLES_DEPS) $(BUILD)/examples/bmi_mx.pc | lib
	$(CC) $(CFLAGS) -std=c11 -O2 -g -Wall -Wextra -Werror -DMETHOD_LINKED -o $@ $< \
	    $(EXAMPLES_DIR)/method.c -lxxhash \
	    $$(PKG_CONFIG_PATH=$(BUILD)/examples pkg-config --cflags --libs bmi_mx) \
	    -Wl,-rpath,$(abspath $(LIBDIR))

examples-check: lib examples
	examples/fileserver/check.sh $(BUILD) '$(PORTS)'

# The main job: a real file there and back, over shared memory and over TCP, or over what PORT=
# says. FILE= names one.
run: PORTS := $(or $(PORT),local tcp)
run: deps lib examples
	PORT='$(PORTS)' examples/fileserver/run.sh $(BUILD) $(FILE)
