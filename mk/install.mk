# make install PREFIX=/usr/local DESTDIR=/tmp/stage; make uninstall with the same values. Without DESTDIR the loader's
# cache is updated (mk/loader.sh).

PREFIX       ?= /usr/local
DESTDIR      ?=
# Installed files need no line tables; STRIP=true keeps them.
STRIP        ?= strip --strip-debug
INSTALL_LIB  ?= $(PREFIX)/lib
INSTALL_INC  := $(PREFIX)/include
INSTALL_BIN  := $(PREFIX)/bin
INSTALL_PC   := $(INSTALL_LIB)/pkgconfig
INSTALL_DOC  ?= $(PREFIX)/share/doc/bmi_mx
INSTALL_MAN  := $(PREFIX)/share/man
# Plugins of Mercury, in a folder for NA_PLUGIN_PATH.
INSTALL_NA   := $(INSTALL_LIB)/mercury
# Wireshark of the same prefix looks there.
INSTALL_SHARK := $(INSTALL_LIB)/wireshark/plugins

# Programs, if their own parts have built them.
INSTALL_BINS += $(filter $(BINDIR)/%,$(BIN_TARGETS)) $(PROGRAMS_BIN) $(MX_INFO)
INSTALL_HDRS := $(wildcard include/*.h)
# Headers that configure scripts of MX programs look for, in a directory of their own.
INSTALL_INTERNALS := $(wildcard include/mx_internals/*.h)
INSTALL_DOCS := README.md CHANGELOG.md $(wildcard LICENSE*) $(wildcard docs/*.md) bench/RESULTS.md bench/results.svg

# Pages, and links to them for all names in their NAME sections: page=link.
MAN_PAGES    := $(sort $(wildcard docs/man/man?/*))
MAN_DIRS     := $(notdir $(wildcard docs/man/man?))
MAN_LINKS    := $(shell for page in docs/man/man3/*.3; do \
    awk -v page="$$(basename "$$page")" '/^\.Sh/ { names = $$2 == "NAME" } \
        names && $$1 == ".Nm" && $$2 ".3" != page { print page "=" $$2 ".3" }' "$$page"; done)

CHECK_TARGETS += man-check install-check static-check

.PHONY: install uninstall install-check static-check man-check

# Installed from $(LIBDIR), with the links that the loader and the linker look for.
define install_library
install -m 755 $(LIBDIR)/$(realname) $(DESTDIR)$(INSTALL_LIB)/
ln -sfn $(realname) $(DESTDIR)$(INSTALL_LIB)/$(soname)
ln -sfn $(soname) $(DESTDIR)$(INSTALL_LIB)/lib$(1).so
install -m 644 $(LIBDIR)/lib$(1).a $(DESTDIR)$(INSTALL_LIB)/
$(STRIP) $(DESTDIR)$(INSTALL_LIB)/$(realname) $(DESTDIR)$(INSTALL_LIB)/lib$(1).a
sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(INSTALL_LIB:$(PREFIX)/%=$${prefix}/%)|' \
    -e 's|@INCLUDEDIR@|$${prefix}/include|' -e 's|@VERSION@|$(VERSION)|' \
    pkgconfig/$(1).pc.in > $(DESTDIR)$(INSTALL_PC)/$(1).pc

endef

# A plugin, and the file that names its folder.
define install_plugin
install -m 755 $(LIBDIR)/$(PLUGIN_$(1)) $(DESTDIR)$(INSTALL_NA)/
$(STRIP) $(DESTDIR)$(INSTALL_NA)/$(PLUGIN_$(1))
sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@PLUGINDIR@|$(INSTALL_NA:$(PREFIX)/%=$${prefix}/%)|' -e 's|@VERSION@|$(VERSION)|' \
    pkgconfig/$(basename $(PLUGIN_$(1))).pc.in > $(DESTDIR)$(INSTALL_PC)/$(basename $(PLUGIN_$(1))).pc

endef

install: all
	install -d $(addprefix $(DESTDIR),$(INSTALL_LIB) $(INSTALL_NA) $(INSTALL_INC) $(INSTALL_BIN) $(INSTALL_PC) \
	    $(INSTALL_INC)/mx_internals $(INSTALL_DOC) $(INSTALL_SHARK) $(addprefix $(INSTALL_MAN)/,$(MAN_DIRS)))
	$(foreach library,$(LIBRARIES),$(call install_library,$(library)))
	$(foreach plugin,$(PLUGINS),$(call install_plugin,$(plugin)))
	install -m 644 $(INSTALL_HDRS) $(DESTDIR)$(INSTALL_INC)/
	install -m 644 $(INSTALL_INTERNALS) $(DESTDIR)$(INSTALL_INC)/mx_internals/
	install -m 644 wireshark/mx.lua $(DESTDIR)$(INSTALL_SHARK)/
	for program in $(sort $(INSTALL_BINS)); do \
	    install -m 755 $$program $(DESTDIR)$(INSTALL_BIN)/; \
	done
	for name in $(MX_INFO_NAMES); do ln -sfn mx_info $(DESTDIR)$(INSTALL_BIN)/$$name; done
	for document in $(wildcard $(INSTALL_DOCS)); do \
	    install -m 644 $$document $(DESTDIR)$(INSTALL_DOC)/; \
	done
	for page in $(MAN_PAGES:docs/man/%=%); do \
	    install -m 644 docs/man/$$page $(DESTDIR)$(INSTALL_MAN)/$$page; \
	done
	for link in $(MAN_LINKS); do \
	    ln -sfn "$${link%=*}" "$(DESTDIR)$(INSTALL_MAN)/man3/$${link#*=}"; \
	done
	@$(if $(DESTDIR),,mk/loader.sh '$(INSTALL_LIB)')

# Removes only files of `install`. In a prefix of its own empty directories are removed too; those of /usr and
# /usr/local belong to the system.
uninstall:
	rm -f $(foreach library,$(LIBRARIES),$(addprefix $(DESTDIR)$(INSTALL_LIB)/, \
	    $(call realname,$(library)) $(call soname,$(library)) lib$(library).so lib$(library).a \
	    pkgconfig/$(library).pc))
	rm -f $(foreach plugin,$(PLUGINS),$(DESTDIR)$(INSTALL_NA)/$(PLUGIN_$(plugin)) \
	    $(DESTDIR)$(INSTALL_PC)/$(basename $(PLUGIN_$(plugin))).pc)
	if [ -d "$(DESTDIR)$(INSTALL_NA)" ]; then rmdir --ignore-fail-on-non-empty "$(DESTDIR)$(INSTALL_NA)"; fi
	rm -f $(patsubst include/%,$(DESTDIR)$(INSTALL_INC)/%,$(INSTALL_HDRS) $(INSTALL_INTERNALS))
	if [ -d "$(DESTDIR)$(INSTALL_INC)/mx_internals" ]; then \
	    rmdir --ignore-fail-on-non-empty "$(DESTDIR)$(INSTALL_INC)/mx_internals"; \
	fi
	rm -f $(addprefix $(DESTDIR)$(INSTALL_BIN)/,$(notdir $(INSTALL_BINS)) $(MX_INFO_NAMES))
	rm -f $(MAN_PAGES:docs/man/%=$(DESTDIR)$(INSTALL_MAN)/%)
	for link in $(MAN_LINKS); do rm -f "$(DESTDIR)$(INSTALL_MAN)/man3/$${link#*=}"; done
	rm -f $(DESTDIR)$(INSTALL_SHARK)/mx.lua
	for directory in $(INSTALL_SHARK) $(dir $(INSTALL_SHARK)); do \
	    if [ -d "$(DESTDIR)$$directory" ]; then rmdir --ignore-fail-on-non-empty "$(DESTDIR)$$directory"; fi; \
	done
	rm -rf $(DESTDIR)$(INSTALL_DOC)
	@$(if $(DESTDIR),,mk/loader.sh --gone '$(INSTALL_LIB)')
ifeq ($(filter /usr /usr/local,$(PREFIX)),)
	for directory in lib/pkgconfig lib include bin share/doc $(MAN_DIRS:%=share/man/%) \
	    share/man share .; do \
	    directory=$(DESTDIR)$(PREFIX)/$$directory; \
	    if [ -d "$$directory" ]; then \
	        rmdir --ignore-fail-on-non-empty "$$(realpath "$$directory")"; \
	    fi; \
	done
endif

man-check: $(sort $(INSTALL_BINS)) mx-info-names
	mk/man_check.sh docs/man include $(BINDIR)

install-check:
	mk/install_check.sh $(BUILD) "$(MAKE)" "$(CC)" "$(CXX)"

# Checks the static libraries in programs that panic themselves.
static-check: lib
	mk/static_check.sh $(LIBDIR) "$(CC)"
