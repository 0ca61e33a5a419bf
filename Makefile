# Two commands: `make run` builds the target and serves it, `make test` runs every test.
# Both only make .venv from lockfiles/python.txt where it is not there yet, and hand over.
#   PYTHON=python3.12   the interpreter to make .venv with
#   TARGET=demo         another target than the settings name
#   ARGS='…'            more arguments for `supervisor run` or pytest
# All paths are relative, so a checkout whose path holds spaces works too.

.PHONY: help run test venv

help:
	@echo 'make run    build the target and serve it (TARGET=, ARGS=)'
	@echo 'make test   run every test (ARGS=)'

run: venv
	@.venv/bin/doit $(if $(TARGET),'target=$(TARGET)')
	@.venv/bin/supervisor run $(if $(TARGET),--target '$(TARGET)') $(ARGS)

test: venv
	@.venv/bin/pytest -n auto --maxprocesses 4 --dist loadscope $(ARGS)

venv:
	@PYTHON='$(PYTHON)' sh lockfiles/venv.sh
