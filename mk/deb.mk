# Debian packages, by Debian's own tools from debian/.
#
#   deb        builds them into $(BUILD)/deb and has lintian look at them; what cargo has compiled is used
#   check-deb  installs them in a fresh Debian 12, uses them there as an ordinary user, and removes them
#              without a trace: as root, with debootstrap and a Debian mirror. SUITE=trixie takes another one

DEB_OUT      := $(BUILD)/deb
DEB_COMMANDS := dpkg-buildpackage dh lintian
DEB_PACKAGES := dpkg-dev debhelper lintian
SUITE        ?= bookworm

.PHONY: deb check-deb

# -d: Build-Depends were looked after here, and may come from elsewhere.
deb:
	@mk/deps.sh $(RUST_MIN) "$(DEPS_COMMANDS) $(DEB_COMMANDS)" "$(DEPS_PACKAGES) $(DEB_PACKAGES)" "" $(CARGO)
	@[ "$$(dpkg-parsechangelog -S Version)" = $(VERSION) ] || \
	    { echo "deb: debian/changelog is of another version than Cargo.toml: $(VERSION)" >&2; exit 1; }
	rm -rf $(DEB_OUT)/*.deb $(DEB_OUT)/*.changes $(DEB_OUT)/*.buildinfo
	mkdir -p $(DEB_OUT)
	env -u MAKEFLAGS -u MAKELEVEL DEB_OUT='$(abspath $(DEB_OUT))' CARGO='$(CARGO)' \
	    dpkg-buildpackage -b -us -uc -d --changes-option=-u$(DEB_OUT) --buildinfo-option=-u$(DEB_OUT) \
	    --buildinfo-file=$(DEB_OUT)/bmi-mx.buildinfo --changes-file=$(DEB_OUT)/bmi-mx.changes
	dh_clean
	lintian --allow-root --fail-on error,warning $(DEB_OUT)/bmi-mx.changes
	@ls $(DEB_OUT)/*.deb

check-deb: deb
	mk/check_deb.sh $(DEB_OUT) $(SUITE)
