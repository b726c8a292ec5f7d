# Random programs on real processes: testing/torture.
#
#   torture         MINUTES=n over PORT, or over each in turn, from SEED on (default: the time of day)
#                   PROGRAMS=n, SHAPE=name: n programs of that shape. A failure prints the command that
#                   repeats it; the last actions of the nodes are in $(BUILD)/torture.
#   torture-check   the first seeds for a few seconds on each port

BIN_TARGETS   += $(BINDIR)/bmi_mx_torture
CHECK_LONG_TARGETS += torture-check

TORTURE = $(BINDIR)/bmi_mx_torture --library $(LIBDIR)/libbmi_mx.so --logs $(BUILD)/torture

.PHONY: torture torture-check

torture: lib $(BINDIR)/bmi_mx_torture
	@for port in $(PORTS); do \
	    $(TORTURE) --port $$port --seed $(or $(SEED),$$(date +%s)) \
	        --seconds $$(($(or $(MINUTES),10) * 60)) \
	        $(if $(PROGRAMS),--programs $(PROGRAMS)) $(if $(SHAPE),--shape $(SHAPE)) || exit 1; \
	done

torture-check: lib $(BINDIR)/bmi_mx_torture
	@for port in $(PORTS); do $(TORTURE) --port $$port --seconds 10 || exit 1; done
