# Every target is one call of xtask, where the work is described. ARGS goes to demo and bench.
XTASK = cargo run --quiet --locked --package xtask --
ARGS ?=

.PHONY: setup test demo lint bench docs man install rooms
setup:   ; @$(XTASK) setup
test:    ; @$(XTASK) test
demo:    ; @$(XTASK) demo $(ARGS)
lint:    ; @$(XTASK) lint
bench:   ; @$(XTASK) bench $(ARGS)
docs:    ; @$(XTASK) docs
man:     ; @$(XTASK) man
install: ; @$(XTASK) install
rooms:   ; @$(XTASK) rooms
