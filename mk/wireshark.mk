# Wireshark's dissector of the protocol: wireshark/mx.lua.
#
#   dissector-check   every kind of packet, the fuzzers' corpus, and a capture of the file server (as root):
#                     part of check

CHECK_TARGETS += dissector-check

check check-long dissector-check: DEPS_COMMANDS += tshark text2pcap
check check-long dissector-check: DEPS_PACKAGES += tshark

.PHONY: dissector-check

dissector-check: deps lib $(BINDIR)/bmi_fileserver $(BINDIR)/bmi_cp
	wireshark/check.sh $(BUILD)
