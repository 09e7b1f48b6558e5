# Every target is one call of xtask, where the work is described. ARGS goes to test, demo, lint, bench, fuzz, deb,
# races, miri, portable, vm-test and vm-packages; KERNELS, by commas, chooses among the kernels of
# tests/vm/kernels.toml.
XTASK = cargo run --quiet --locked --package xtask --
ARGS ?=
export KERNELS ?=

.PHONY: setup test vm-test vm-packages demo lint bench fuzz races miri docs man laboratory install deb rooms portable
setup:   ; @$(XTASK) setup
test:    ; @$(XTASK) test $(ARGS)
vm-test: ; @$(XTASK) vm test $(ARGS)
vm-packages: ; @$(XTASK) vm packages $(ARGS)
demo:    ; @$(XTASK) demo $(ARGS)
lint:    ; @$(XTASK) lint $(ARGS)
bench:   ; @$(XTASK) bench $(ARGS)
fuzz:    ; @$(XTASK) fuzz $(ARGS)
races:   ; @$(XTASK) races $(ARGS)
miri:    ; @$(XTASK) miri $(ARGS)
docs:    ; @$(XTASK) docs
man:     ; @$(XTASK) man
laboratory: ; @$(XTASK) laboratory
install: ; @$(XTASK) install
deb:     ; @$(XTASK) deb $(ARGS)
rooms:   ; @$(XTASK) rooms
portable: ; @$(XTASK) portable $(ARGS)
