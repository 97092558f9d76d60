# `make` alone lists the jobs. A job makes what it needs first: uv in .bootstrap, then .venv with
# the packages of requirements.lock and this one, editable. python3 and make are all it asks for.

UV_VERSION := 0.13.8
UV := .bootstrap/bin/uv
BIN := .venv/bin
export NO_MKDOCS_2_WARNING := 1

# Behind a company's proxy the system's certificates are the ones that hold; pip uses them anyway.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),)
export UV_SYSTEM_CERTS := 1
endif

.PHONY: help demo test check bench tables docs lock clean

help:
	@echo "make demo    a network loses accuracy under shift and gets it back; options: ARGS='--severity 5'"
	@echo "make test    the test suite, minutes; a part of it: ARGS='tests/test_cli.py -k version'"
	@echo "make check   all that CI asks: format, lint, types, docs, the built wheel, every test"
	@echo "make bench   speed on this machine, beside the usual way of writing it"
	@echo "make tables  the tables and pictures of the README, from benchmarks/results"
	@echo "make docs    the guide and the reference, into site/"
	@echo "make lock    requirements.lock anew, after dependencies changed in pyproject.toml"
	@echo "make clean   take away what make built"

demo: .venv/.ready
	$(BIN)/acclimate demo $(ARGS)

test: .venv/.ready
	$(BIN)/pytest --timeout 600 $(ARGS)

# The tests come last, so that the output ends with their verdict.
check: .venv/.ready
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mkdocs build --strict --quiet
	UV=$(UV) PYTHON=$(BIN)/python .ci/wheel
	$(BIN)/pytest --timeout 600 -m ""

bench: .venv/.ready
	$(BIN)/python benchmarks/speed.py $(ARGS)

tables: .venv/.ready
	$(BIN)/python benchmarks/tables.py

docs: .venv/.ready
	$(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

# Universal, so that one lock serves every platform; no addresses, so that any mirror may serve it.
lock: | $(UV)
	$(UV) pip compile pyproject.toml --extra all --group dev --universal --python-version 3.11 \
		--upgrade --quiet --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --output-file requirements.lock

clean:
	rm -rf .bootstrap .venv build dist site .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache

.venv/.ready: requirements.lock pyproject.toml | $(UV)
	$(UV) venv --quiet --allow-existing .venv
	$(UV) pip sync --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# Debian's python3 has a venv module without ensurepip: then pip puts uv there without a venv.
$(UV):
	@{ python3 -m venv .bootstrap >/dev/null 2>&1 \
		&& .bootstrap/bin/python -m pip install --quiet uv==$(UV_VERSION); } \
	|| { rm -rf .bootstrap; python3 -m pip install --quiet --target .bootstrap uv==$(UV_VERSION); } \
	|| { echo "make could not install uv: python3 needs venv or pip (Debian, Ubuntu:" \
		"apt install python3-venv), and pip needs a package index." >&2; exit 1; }
