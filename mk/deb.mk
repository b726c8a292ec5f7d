# Debian packages, built with Debian's own tools from debian/.
#
#   deb        builds them into $(BUILD)/deb and has lintian check them; cargo's products are reused
#   deb-arm64  for 64-bit Arm, with Debian's tools (mk/arm64.mk), into $(BUILD)/deb/arm64
#   check-deb-arm64  runs the file server of those, emulated, and with this machine's
#   check-deb  installs them in a new Debian 12, uses them there as an ordinary user, and removes them
#              without a trace: as root, with debootstrap and a Debian mirror. SUITE=trixie takes another one

DEB_COMMANDS := dpkg-buildpackage dh lintian
DEB_PACKAGES := dpkg-dev debhelper lintian
SUITE        ?= bookworm

# arm64, or empty for this machine's architecture.
DEB_ARCH     :=
DEB_OUT      := $(BUILD)/deb$(DEB_ARCH:%=/%)
DEB_ARM64    := $(BUILD)/deb/arm64
DEB_CARGO    := $(if $(DEB_ARCH),$(ARM64_RUST)/cargo,$(CARGO))

.PHONY: deb deb-arm64 check-deb check-deb-arm64

# -d: `deps` has checked Build-Depends already, and they may come from elsewhere.
deb: $(if $(DEB_ARCH),arm64-deps)
	@mk/deps.sh $(RUST_MIN) "$(DEPS_COMMANDS) $(DEB_COMMANDS)" "$(DEPS_PACKAGES) $(DEB_PACKAGES)" "" $(DEB_CARGO)
	@[ "$$(dpkg-parsechangelog -S Version)" = $(VERSION) ] || \
	    { echo "deb: debian/changelog is of another version than Cargo.toml: $(VERSION)" >&2; exit 1; }
	rm -rf $(DEB_OUT)/*.deb $(DEB_OUT)/*.changes $(DEB_OUT)/*.buildinfo
	mkdir -p $(DEB_OUT)
	env -u MAKEFLAGS -u MAKELEVEL DEB_OUT='$(abspath $(DEB_OUT))' CARGO='$(DEB_CARGO)' \
	    $(if $(DEB_ARCH),RUSTC=$(ARM64_RUST)/rustc) dpkg-buildpackage $(DEB_ARCH:%=-a% -Pcross,nocheck) -b -us -uc -d --changes-option=-u$(DEB_OUT) --buildinfo-option=-u$(DEB_OUT) \
	    --buildinfo-file=$(DEB_OUT)/bmi-mx.buildinfo --changes-file=$(DEB_OUT)/bmi-mx.changes
	dh_clean
	lintian --allow-root --fail-on error,warning $(DEB_OUT)/bmi-mx.changes
	@ls $(DEB_OUT)/*.deb

check-deb: deb
	mk/check_deb.sh $(DEB_OUT) $(SUITE)

deb-arm64:
	$(MAKE) --no-print-directory deb DEB_ARCH=arm64

# As check-arm64-files does, with the programs of the packages.
check-deb-arm64: deb-arm64
	$(arm64_here) $(subst $(BUILD)/,$(BUILD)/check/,$(ARM64_BOTH))
	rm -rf $(DEB_ARM64)/there && mkdir -p $(DEB_ARM64)/there
	for package in libbmi-mx0 bmi-mx-tools; do \
	    dpkg-deb -x $(DEB_ARM64)/$${package}_*_arm64.deb $(DEB_ARM64)/there; \
	done
	ln -s usr/bin $(DEB_ARM64)/there/bin
	ln -s usr/lib/aarch64-linux-gnu $(DEB_ARM64)/there/lib
	testing/arm64/files.sh $(BUILD)/check $(DEB_ARM64)/there '$(ARM64_PORTS)' $(ARM64_EMULATOR)
