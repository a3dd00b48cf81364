# SPDX-License-Identifier: GPL-2.0-only
# corun's front door. Each target installs what it needs and says what that is.
#
#   make run     build, compare policies on an example host, write a report
#   make test    everything that can be tested without a special machine
#   make e2e     the same dispatcher in a real kernel with real KVM guests, emulated
#   make validate the simulator against a real kernel, scenario by scenario
#   make placement KERNEL=FILE  where a kernel (a bzImage) puts threads, emulated
#   make bench   how fast the simulator is
#   make bench-decisions what the dispatcher's callbacks cost, in instructions (callgrind; half an hour)
#   make bench-guest corun guest in an emulated VM that loses its pCPUs half of the time
#   make recordings the decisions that tests replay, made anew in an emulated host
#   make claims  the papers' claims: writes docs/claims.md and the tables of docs/ anew
#   make package  the Debian package, in out/
#   make package-test the package checked, installed and removed in a clean root, and the Ansible role
#   make book    the documentation as a book, in book/
#   make lint    formatting and lints

CORUN := target/release/corun

.PHONY: run test e2e validate placement bench bench-decisions bench-guest recordings claims package package-test book lint build

run: build
	@mkdir -p out
	$(CORUN) compare experiments/example.toml --report out/report.html
	@echo "The report lies in out/report.html. Next: $(CORUN) compare --help"

build:
	@scripts/install.sh build
	cargo build --release -p corun

# First all that is installed: what reports are built of, put there once more, would be built once more.
test:
	@scripts/install.sh test
	@$(MAKE) --no-print-directory build
	@scripts/lint.sh
	cargo test --workspace
	@scripts/verdicts.py
	@scripts/determinism.sh
	@scripts/book.py run slow $(CORUN)
	@node crates/report/page/test.mjs $(CORUN) experiments/example.toml

e2e:
	@scripts/install.sh build
	testbed/e2e/run.sh

validate:
	@scripts/install.sh build
	testbed/validate/run.sh $(if $(WRITE),--write)

placement:
	@scripts/install.sh build
	@testbed/fetch.sh
	@testbed/placement/measure.py "$(KERNEL)" $(if $(NAME),--name $(NAME))

bench: build
	$(CORUN) bench

bench-decisions:
	@scripts/install.sh bench
	cargo bench -p corun-sim --bench instructions --profile static -- $(if $(QUICK),--quick) $(if $(POLICY),--policy $(POLICY))

recordings:
	@scripts/install.sh build
	testbed/e2e/record-lockstep.sh

bench-guest:
	@scripts/install.sh build
	testbed/guest/run.sh out/bench-guest $(if $(WRITE),--write)

claims: build
	@mkdir -p out
	$(CORUN) reproduce --markdown --pages docs --report out/claims.html > out/claims.md
	@mv out/claims.md docs/claims.md
	@echo "The claims lie in docs/claims.md (tables in their places in docs/), as a page in out/claims.html."

package: build
	packaging/deb/build.sh

package-test: build
	@scripts/install.sh package
	packaging/test.sh

book:
	@scripts/install.sh book
	mdbook build docs
	@echo "The book lies in book/index.html."

lint:
	@scripts/install.sh test
	@scripts/lint.sh
