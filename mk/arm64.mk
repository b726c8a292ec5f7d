# 64-bit Arm on a machine of another kind: cross-compiled with Debian's tools, and run under qemu's emulation of the
# processor.
#
#   check-arm64         the C programs over local, tcp and dgram, and the file server: Arm with Arm, and each with this
#                       machine's. Tens of minutes: C_TESTS=, PORT= and PROFILE= choose as for c-check
#   check-arm64-files   the file server alone
#
# On Debian 12, as root, missing packages are installed. ARM64_RUST is the directory of a cargo and rustc with Rust's
# standard library for the target.

ARM64          := $(BUILD)/arm64
ARM64_RUST     ?= /usr/bin
ARM64_TARGET   := aarch64-unknown-linux-gnu
ARM64_EMULATOR ?= qemu-aarch64-static
ARM64_PORTS    := $(or $(PORT),local tcp dgram)
ARM64_LIB      := /usr/lib/aarch64-linux-gnu
ARM64_NEEDS    := aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ $(ARM64_EMULATOR) $(ARM64_LIB)/libcmocka.so $(ARM64_LIB)/libxxhash.so \
                  $(if $(filter /usr/bin,$(ARM64_RUST)),/usr/lib/rustlib/$(ARM64_TARGET)/lib)
ARM64_PACKAGES := qemu-user-static gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross libcmocka-dev:arm64 \
                  libxxhash-dev:arm64 cargo-web rustc-web libstd-rust-web-dev:arm64
# Tests of features that Debian 12's emulator lacks: MADV_WIPEONFORK and MADV_DONTFORK, which it ignores without an
# error, process_vm_readv, and filters of system calls.
ARM64_LEFT_OUT := a_client_that_daemonizes_goes_on_in_its_child a_grandchild_goes_on_too parent_and_child_both_go_on \
    pending_operations_end_once_in_the_child_and_go_on_in_the_parent a_child_that_merely_lives_has_nothing \
    a_server_that_daemonizes_serves_its_old_clients_and_new_ones a_child_of_fork_can_be_another_user \
    a_child_of_a_living_server_waits_for_its_place \
    forks_of_a_process_with_threads_in_test_calls_go_on a_forked_child_may_begin_a_life_of_its_own \
    a_child_forked_while_others_start_and_look_up_is_not_stuck \
    options_are_taken_up_to_the_end_of_memory the_log_tells_a_mistake_from_an_old_host \
    without_clone3_it_says_so where_clone3_is_unknown_it_begins without_membarrier_sleepers_are_woken \
    a_server_without_membarrier_wakes_and_is_woken a_client_without_membarrier_wakes_and_is_woken

# With assertions, unless the caller chooses.
ARM64_PROFILE  := $(if $(filter command line,$(origin PROFILE)),$(PROFILE),dev)
ARM64_BOTH     := lib $(BINDIR)/bmi_fileserver $(BINDIR)/bmi_cp

.PHONY: check-arm64 check-arm64-files arm64-deps arm64-both arm64-syntax

arm64-deps:
	@! [ "$$(id -u)" = 0 ] || ! command -v dpkg >/dev/null || dpkg --add-architecture arm64
	@mk/deps.sh $(RUST_MIN) "$(DEPS_COMMANDS) $(ARM64_NEEDS)" "$(DEPS_PACKAGES) $(ARM64_PACKAGES)" "" $(ARM64_RUST)/cargo || \
	    { echo "check-arm64: before that, dpkg --add-architecture arm64 and apt-get update" >&2; exit 1; }

# Runs this Makefile again, with the tools of the target.
arm64_make = env RUSTC=$(ARM64_RUST)/rustc CARGO_TARGET_DIR=$(abspath $(ARM64))/cargo CARGO_BUILD_TARGET=$(ARM64_TARGET) \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CROSS=aarch64-linux-gnu- \
    C_TESTS_EMULATOR=$(ARM64_EMULATOR) \
    $(MAKE) --no-print-directory PROFILE=$(ARM64_PROFILE) BUILD=$(ARM64) PORT='$(ARM64_PORTS)' CARGO=$(ARM64_RUST)/cargo \
    CARGO_OUT=$(abspath $(ARM64))/cargo/$(ARM64_TARGET)/$(if $(filter dev,$(ARM64_PROFILE)),debug,$(ARM64_PROFILE)) \
    CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++

# Builds for this machine, as `check` does.
arm64_here = $(MAKE) --no-print-directory PROFILE=$(ARM64_PROFILE) BUILD=$(BUILD)/check

arm64_files = testing/arm64/files.sh $(BUILD)/check $(ARM64) '$(ARM64_PORTS)' $(ARM64_EMULATOR)

arm64-both: arm64-deps
	$(arm64_here) $(subst $(BUILD)/,$(BUILD)/check/,$(ARM64_BOTH))
	$(arm64_make) $(subst $(BUILD)/,$(ARM64)/,$(ARM64_BOTH))

# Only the syntax of the script; part of check.
arm64-syntax:
	@bash -n testing/arm64/files.sh

CHECK_TARGETS += arm64-syntax

check-arm64: arm64-both
	@good=true; C_TESTS_LEFT_OUT='$(ARM64_LEFT_OUT)' $(arm64_make) c-check || good=false; $(arm64_files) || good=false; $$good

check-arm64-files: arm64-both
	$(arm64_files)
