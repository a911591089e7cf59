# Every target does its own set-up on a fresh Debian 12 or 13, as root: packages of the host (only what is missing), a
# virtual environment, the guest. Second runs find all of that in place. Where things are kept: .venv, build/, and
# $OPENPEROUTER_CACHE (default /var/cache/openperouter-dev). Python itself comes from the host.

SHELL := /bin/sh
PYTHON ?= /usr/bin/python3
REQUIREMENTS := packaging/requirements
RESULTS := build/results
GUEST := PYTHONPATH=tests/harness $(PYTHON)
CLUSTER := PYTHONPATH=tests/harness $(PYTHON)
UNIT_TESTS := $(wildcard tests/config tests/actors tests/supervisor tests/packaging tests/harness)
# What needs VRF devices runs in User-Mode Linux; FRR alone is content with the host's kernel, where processes start several
# times as quickly.
FABRIC_TESTS := $(patsubst %,tests/frr/test_%.py,fabric health host_sessions moves segments vrfs)
# User-Mode Linux has no nftables for IP, and the host's kernel has.
FILTER_TESTS := tests/kernel/test_packet_filter.py
KERNEL_TESTS := tests/kernel $(FILTER_TESTS:%=--ignore=%)
ROUTER_TESTS := tests/router $(FABRIC_TESTS)
UML_TESTS := $(KERNEL_TESTS) $(ROUTER_TESTS)
# What Debian 13's FRR cannot do yet.
NEXT_TESTS := tests/frr/test_ipv6_fabric.py
FRR_TESTS := tests/frr $(FABRIC_TESTS:%=--ignore=%) $(NEXT_TESTS:%=--ignore=%) $(FILTER_TESTS)
# More processes than cores pay off only where tests wait; more than four cost start-up time.
JOBS ?= $(shell n=$$(nproc); [ $$n -gt 4 ] && n=4; echo $$n)
# Unit tests do: for a Prometheus, for a terminal, for the end of a trial.
UNIT_JOBS ?= $(shell echo $$(($(JOBS) + 1)))

# With these a cold "make test" on two cores would take far longer than an hour: test-guest-long runs them.
LONG_GUEST_TESTS := $(patsubst %,tests/guest/test_%.py,cluster daemon_in_a_pod first_ten_minutes namespace_deleted nic_deaths podman random_kills two_nodes)
# These only "make test-guest" by itself runs, for the same reason.
ALONE_GUEST_TESTS := $(patsubst %,tests/guest/test_%.py,frr_upgrade operations_page)
# These tests mostly wait for servers; each process has one of its own.
CLUSTER_JOBS ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo test check format test-newest test-simulation simulate soak test-frr test-uml test-kernel test-router test-guest test-guest-long test-cluster install clean clean-cache
.PHONY: site release test-browser test-image screenshot host-browser host-prometheus host-gobgp host-shells soak-vrfs test-frr-next bench bench-guest bench-nodes bench-networks bench-changes bench-memory deb image check-deb check-deb-next test-deb host-python host-guest host-uml host-cluster api-servers
# The set-up steps share apt and the caches.
.NOTPARALLEL:

help:
	@echo 'make demo            boot a node and a fabric, start the router, show that it forwards (PROMPT=1: stay inside)'
	@echo 'make check           lint, types, import contracts, style, unit tests (under two minutes)'
	@echo 'make test            everything: check, unit tests with the newest libraries, FRR, kernel, guest and cluster tests'
	@echo 'make test-simulation only the simulated episodes with injected faults     (make simulate SEED=n: one; make soak: endless)'
	@echo 'make test-browser    only the page of "openperouter web" in a real browser  (make screenshot: its picture in the docs)'
	@echo 'make test-frr        only the tests with real FRR daemons             (ARGS="-k name" picks tests; so do all)'
	@echo 'make test-uml        only the tests on a real kernel, User-Mode Linux       (its halves: test-kernel, test-router)'
	@echo 'make test-frr-next   only what Debian 13 has no FRR for: with that of Debian 14 (testing), on User-Mode Linux'
	@echo 'make test-guest      only the tests on a booted Debian 13'
	@echo 'make test-guest-long more of them: a node in a cluster, one that loses its namespace, a hundred deaths of the daemon, FRR in podman, two nodes'
	@echo 'make soak-vrfs       add and remove 300 VRFs with thousands of routes, with FRR on a real kernel (REMOVALS=300)'
	@echo 'make test-cluster    only the tests with a real Kubernetes API server (two minors, built once, in eight minutes; needs Go)'
	@echo 'make deb             build the Debian package (VERIFY=1: twice, and compare)'
	@echo 'make image           build the container images (build/image), with their bills of materials (NAMES=openperouter-router: one)'
	@echo 'make test-image      run the image as the metrics pod, under podman, scraped by Prometheus'
	@echo 'make check-deb       install, use, upgrade, remove and purge it in a tree; make test-deb: its tests on booted guests'
	@echo 'make check-deb-next  the same in a tree of Debian 14 (testing)'
	@echo 'make bench           CPU, event loop and kernel work of hundreds of networks, with limits      (NETWORKS=500)'
	@echo 'make bench-guest     the same on a booted node: changes, restart, CPU at rest, memory, with floors  (NETWORKS=100)'
	@echo 'make bench-nodes     many nodes against one API server (NODES=200); make bench-networks: networks from the API against a file'
	@echo 'make bench-changes   pings lost by changes, against the procedure that upstream documents  (ARGS=port: those named so)'
	@echo 'make bench-memory    the daemon'"'"'s memory on a booted node after a thousand changes'
	@echo 'make format          let ruff fix what it can'
	@echo 'make site            build the documentation as a site, without the network, into build/site'
	@echo 'make release         build all files of a release into build/release; tags and pushes nothing (DRAFT=1: whatever the changelogs say)'
	@echo 'make install         lay the program out below DESTDIR'
	@echo 'make clean           remove what was built here; clean-cache: the guest as well'

demo: host-guest
	@$(GUEST) -m demo $(if $(PROMPT),--prompt)

check: .venv/.ready host-prometheus host-shells
	@mkdir -p $(RESULTS)
	.venv/bin/pytest -q -n $(UNIT_JOBS) --junitxml=$(RESULTS)/check.xml tests/checks $(UNIT_TESTS) $(ARGS)

format: .venv/.ready
	.venv/bin/ruff check --fix --quiet . || true
	.venv/bin/ruff format .

# Debian 13's libraries are what nodes run today; the newest are what they will run.
test-newest: .venv-newest/.ready
	@mkdir -p $(RESULTS)
	.venv-newest/bin/pytest -q -n $(UNIT_JOBS) -p no:cacheprovider --junitxml=$(RESULTS)/newest.xml $(UNIT_TESTS) $(ARGS)

# Sets of strings have the same order in each process, so that a seed means the same everywhere.
SIMULATION := PYTHONHASHSEED=0 .venv/bin/python -m
test-simulation: .venv/.ready
	@mkdir -p $(RESULTS)
	$(SIMULATION) pytest -q -n $(JOBS) --dist worksteal -p no:cacheprovider --junitxml=$(RESULTS)/simulation.xml \
	    tests/simulation $(ARGS)

# In a network namespace that has only loopback.
test-browser: .venv/.ready host-browser
	@mkdir -p $(RESULTS)
	OPENPEROUTER_BROWSER_TESTS=1 unshare --net sh -c 'ip link set lo up && exec "$$@"' sh \
	    .venv/bin/pytest -q -p no:cacheprovider --junitxml=$(RESULTS)/browser.xml tests/browser $(ARGS)

screenshot:
	@OPENPEROUTER_SCREENSHOT=$(CURDIR)/docs/images/web.png $(MAKE) --no-print-directory test-browser ARGS='-k picture'

simulate: .venv/.ready
	@$(SIMULATION) tests.simulation --seed $(or $(SEED),$(error say which: SEED=123))

# New seeds until it is stopped.
soak: .venv/.ready
	@$(SIMULATION) tests.simulation --processes $(JOBS)

test-frr: host-guest host-gobgp
	@mkdir -p $(RESULTS)
	tree=$$($(GUEST) -m guestvm tree) && tests/harness/container/run.sh $$tree $(RESULTS) \
	    python3 -m pytest -q --color=no -p no:cacheprovider --junitxml=/results/frr.xml $(FRR_TESTS) $(ARGS)

# Beside other work of the machine it may take twice as long as alone, and more.
UML_SECONDS ?= 7200
UML_RUN ?= uml
test-uml: host-uml
	@mkdir -p $(RESULTS)
	tree=$$($(GUEST) -m guestvm tree) && $(PYTHON) tests/harness/uml/run.py --tree $$tree --results $(RESULTS) \
	    --timeout $(UML_SECONDS) $(if $(REMOVALS),--env OPENPEROUTER_VRF_REMOVALS=$(REMOVALS)) -- python3 -m pytest -q --color=no -p no:cacheprovider --junitxml=/results/$(UML_RUN).xml $(UML_TESTS) $(ARGS)

# Its halves, each in a machine of its own: one has one core, and much of the time waits for FRR.
test-kernel:
	@$(MAKE) --no-print-directory test-uml UML_TESTS='$(KERNEL_TESTS)' UML_RUN=kernel

test-router:
	@$(MAKE) --no-print-directory test-uml UML_TESTS='$(ROUTER_TESTS)' UML_RUN=router

# With Debian 14's FRR and libraries, on the same kernel; by hand, since its tree is one more to build.
test-frr-next:
	@OPENPEROUTER_SUITE=forky $(MAKE) --no-print-directory test-uml UML_TESTS="$(NEXT_TESTS) tests/frr/test_ipv6_tunnels.py"

# 300 VRFs come and go, ten at a time, with ten thousand routes; prints a line a round.
soak-vrfs:
	@$(MAKE) --no-print-directory test-uml UML_TESTS=tests/frr/test_vrfs.py REMOVALS=$(or $(REMOVALS),300) UML_SECONDS=20000

test-guest: .venv/.ready host-guest
	@mkdir -p $(RESULTS)
	OPENPEROUTER_GUEST_TESTS=1 .venv/bin/pytest -q --junitxml=$(RESULTS)/guest.xml \
	    $(LONG_GUEST_TESTS:%=--ignore=%) $(if $(SHORT),$(ALONE_GUEST_TESTS:%=--ignore=%)) tests/guest $(ARGS)

test-guest-long: .venv/.ready host-guest api-servers
	@tests/harness/ensure-packages.sh buildah
	@mkdir -p $(RESULTS)
	OPENPEROUTER_GUEST_TESTS=1 .venv/bin/pytest -q --junitxml=$(RESULTS)/guest-long.xml $(LONG_GUEST_TESTS) $(ARGS)

# Without Go the tests are there, skipped, and say so.
test-cluster: .venv/.ready api-servers
	@mkdir -p $(RESULTS)
	OPENPEROUTER_CLUSTER_TESTS=1 .venv/bin/pytest -q -n $(CLUSTER_JOBS) --dist loadfile \
	    --junitxml=$(RESULTS)/cluster.xml tests/cluster $(ARGS)

api-servers: host-cluster
	@$(CLUSTER) -m kubeserver build >/dev/null || [ $$? -eq 3 ]

# Each run starts even if an earlier one failed; the last line adds them up, and the exit code is that line's. The emulated
# machine takes longest, and leaves a core for most of the time. So it starts as soon as it has the package, and gets more of
# the machine than the others, since what it waits for has deadlines. The rest is in two rows beside it, whose output comes
# at the end: what computes, with User-Mode Linux, which has one core; and the tests of FRR and of API servers, which wait for
# daemons most of the time. With much less of the machine they would stand still on a busy one. API servers that have to be
# built first take a small part of the machine, and only the newest is: two take too long.
test: export OPENPEROUTER_KUBERNETES = newest
test: .venv/.ready host-guest host-uml host-cluster host-prometheus host-gobgp host-shells host-browser
	@echo 'Not part of it (CONTRIBUTING.md): the older API server, docs/operations.md and an upgrade of FRR in a guest, make test-guest-long'
	@rm -rf $(RESULTS); mkdir -p $(RESULTS)
	@run() { name=$$1 target=$$2; shift 2; "$$@" $(MAKE) --no-print-directory $$target; echo $$? >$(RESULTS)/$$name.status; }; \
	aside() { \
	    run $$1 $$2 $$3 $$4 $$5 >$(RESULTS)/$$1.log 2>&1; \
	    if grep -qx 0 $(RESULTS)/$$1.status; then echo "== $$1 passed"; else echo "== $$1 FAILED: $(RESULTS)/$$1.log"; fi; \
	}; \
	trap 'trap - INT TERM; kill 0' INT TERM; \
	echo "== beside the following: simulation, check, kernel, router, newest, frr and cluster (output so far: $(RESULTS)/*.log)"; \
	{ \
	    aside simulation test-simulation; aside check check; aside kernel test-kernel; aside router test-router; \
	    aside newest test-newest nice -n 7; \
	} & \
	{ \
	    nice -n 5 $(MAKE) --no-print-directory api-servers >$(RESULTS)/api-servers.log 2>&1 & \
	    aside frr test-frr; wait; aside cluster test-cluster; \
	} & \
	echo "== make test-browser"; \
	run browser test-browser; \
	echo "== make deb VERIFY=1"; \
	if $(MAKE) --no-print-directory deb VERIFY=1; then \
	    OPENPEROUTER_PACKAGE=$$(echo $(CURDIR)/build/deb/*.deb); export OPENPEROUTER_PACKAGE; \
	fi; \
	echo "== make test-guest"; \
	run guest test-guest nice -n -5 env SHORT=1; \
	echo "== waiting for what is not done yet of simulation, check, kernel, router, newest, frr and cluster"; \
	wait; \
	for name in simulation check kernel router newest api-servers frr cluster; do echo "== $$name"; cat $(RESULTS)/$$name.log; done
	@$(PYTHON) tests/harness/summary.py $(RESULTS) check newest simulation browser frr cluster kernel router guest

# Debian 13's files come from the guest's tree; no registry is asked.
image: host-guest
	@tests/harness/ensure-packages.sh buildah
	@$(PYTHON) packaging/image/build_image.py $(NAMES)

# The pods' image, as the manifests run it. runc and Prometheus are Debian's, unpacked into the cache.
test-image: .venv/.ready host-prometheus image
	@tests/harness/ensure-packages.sh podman
	@tests/harness/fetch-package.sh runc runc >/dev/null
	@mkdir -p $(RESULTS)
	OPENPEROUTER_IMAGE_TESTS=1 .venv/bin/pytest -q --junitxml=$(RESULTS)/image.xml tests/image $(ARGS)

deb: host-guest
	@$(PYTHON) packaging/deb/build.py $(if $(VERIFY),--verify-reproducible)

check-deb: deb
	@$(PYTHON) packaging/deb/check_install.py

# The same package in Debian 14 (testing), with that release's libraries; by hand, as test-frr-next is.
check-deb-next: deb
	@OPENPEROUTER_SUITE=forky $(PYTHON) packaging/deb/check_install.py

test-deb: deb
	@$(PYTHON) packaging/deb/autopkgtest.py $(TESTS)

site: .venv/.ready
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

# The commit that is checked out. Only a draft does without buildah and the image.
release: .venv/.ready host-guest
	$(if $(PARTS),,@tests/harness/ensure-packages.sh buildah $(if $(DRAFT),|| true))
	.venv/bin/python packaging/release/make_release.py $(if $(DRAFT),--draft) $(if $(PARTS),--parts $(PARTS))

# On demand: ratios against a baseline of the same run.
BENCH := PYTHONPATH=tests/harness:packaging/deb .venv/bin/python -m
bench: .venv/.ready host-guest host-uml
	@$(BENCH) tests.bench.performance --networks $(or $(NETWORKS),500)

bench-nodes: .venv/.ready host-guest
	$(BENCH) tests.bench.many_nodes --nodes $(or $(NODES),200)

bench-guest: .venv/.ready host-guest
	$(BENCH) tests.bench.guest --networks $(or $(NETWORKS),100)

bench-networks: .venv/.ready host-guest
	$(BENCH) tests.bench.hundred_networks --networks $(or $(NETWORKS),100)

bench-changes: host-uml
	tree=$$($(GUEST) -m guestvm tree) && $(PYTHON) tests/harness/uml/run.py --tree $$tree --timeout 3600 -- \
	    python3 -m tests.bench.changes $(ARGS)

bench-memory: .venv/.ready host-guest
	$(BENCH) tests.bench.memory $(ARGS)

install:
	packaging/install.sh "$(DESTDIR)"
	packaging/completion/install.sh "$(DESTDIR)"

clean:
	rm -rf build .venv .venv-newest .mypy_cache .ruff_cache .pytest_cache .hypothesis

clean-cache:
	rm -rf "$${OPENPEROUTER_CACHE:-/var/cache/openperouter-dev}"

host-python:
	@tests/harness/ensure-packages.sh python3 python3-venv openssl

host-guest:
	@tests/harness/ensure-packages.sh python3
	@tests/harness/ensure-packages.sh $$($(GUEST) -m guestvm packages)

# The compiler is for a shim that some CPUs need (tests/harness/uml/xstate_shim.c).
host-uml: host-guest
	@tests/harness/ensure-packages.sh gcc libc6-dev
	@$(GUEST) -m guestvm kernel >/dev/null

# What some tests need and the others do without: where it is unavailable they are skipped, and say so. CI has to have it.
without = { echo 'no $(1): $(2) skipped' >&2; [ -z "$$CI" ]; }

host-prometheus:
	@tests/harness/fetch-package.sh prometheus prometheus >/dev/null || $(call without,promtool,the tests of alert rules are)

# A host's BGP speaker. Beside the tree, which its 10 MB would make longer to build.
host-gobgp:
	@tests/harness/fetch-package.sh gobgpd gobgp >/dev/null || $(call without,gobgpd,its test is)

# They judge the completion that is generated for them.
host-shells:
	@tests/harness/ensure-packages.sh zsh fish || $(call without,zsh or fish,the tests of their completion are)

# The smallest of Debian's Chromiums, and a font for the picture.
host-browser:
	@tests/harness/ensure-packages.sh chromium-headless-shell fonts-dejavu-core iproute2 || \
	    $(call without,browser,the tests of the web page are)

host-cluster: host-python
	@tests/harness/ensure-packages.sh $$($(CLUSTER) -m kubeserver packages)

# A stamp as last step: an interrupted set-up is done again.
.venv/.ready: $(REQUIREMENTS)/runtime.txt $(REQUIREMENTS)/tests.txt $(REQUIREMENTS)/dev.txt $(REQUIREMENTS)/debian13.txt | host-python
	rm -rf .venv
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -c $(REQUIREMENTS)/debian13.txt -r $(REQUIREMENTS)/dev.txt
	touch $@

.venv-newest/.ready: $(REQUIREMENTS)/runtime.txt $(REQUIREMENTS)/tests.txt | host-python
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --disable-pip-version-check -r $(REQUIREMENTS)/tests.txt
	touch $@
