# The recipes that CI and people use. `just` lists them.

default:
    @just --list

# Everything a change must pass
ci:
    .ci/run

# All tests
test:
    cargo test --workspace --locked

# Compare the gate with bash and dash, for as long as wanted; the seed is printed
fuzz SECONDS="600":
    LEGWORK_FUZZ_SEED=$(date +%s) LEGWORK_FUZZ_SECONDS={{SECONDS}} cargo test --locked --package legwork-gate --test differential --test plain -- --nocapture

# Formatting, lints, licences and sources, as CI looks at them
lint:
    cargo fmt --all --check
    python3 .ci/width.py
    cargo clippy --workspace --all-targets --locked -- --deny warnings
    cargo deny --locked check bans licenses sources

# Windows: built and checked, and driven under wine
windows:
    .ci/windows ci

# The same with as many kills as wanted, all tests that can run there, and the lints
windows-rounds ROUNDS="100":
    .ci/windows clippy
    .ci/windows msvc
    .ci/windows test {{ROUNDS}}
    .ci/windows session {{ROUNDS}}
    .ci/windows e2e

# The pages of the library, in which every link leads somewhere
doc:
    RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --locked

# The book of docs/ as web pages below target/book, where mdbook is installed (`cargo install mdbook`)
book:
    mdbook build docs

# Write what the pages show and the reference anew, from what the program does; look at the difference before you commit
update-docs:
    LEGWORK_UPDATE_DOCS=1 cargo test --locked --package legwork-gate --test configuration
    LEGWORK_UPDATE_FAULTS=1 cargo test --locked --package legwork-cli --test e2e -- faults::
    LEGWORK_UPDATE_DOCS=1 cargo test --locked --package legwork-cli --test e2e -- book:: top::picture:: windows::

# Build the page of `legwork serve` again, from crates/cli/web/src into crates/cli/web/dist
page:
    npm --prefix crates/cli/web ci
    npm --prefix crates/cli/web run check
    npm --prefix crates/cli/web run build

# Take the pictures of the page for README and docs again
pictures:
    LEGWORK_UPDATE_PICTURES=1 cargo test --locked --package legwork-cli --test e2e -- http::page

# How long `legwork top` takes to draw with 1,000 tasks that run; takes minutes
measure-top:
    LEGWORK_MEASURE_TOP=1 cargo test --locked --package legwork-cli --test e2e -- top::running --nocapture

# A thousand tasks on a cluster of two nodes, under which three controllers and a node die; takes minutes
places TASKS="1000":
    LEGWORK_CROWD={{TASKS}} cargo test --locked --package legwork-cli --test e2e -- places::slurm::crowd::a_crowd --nocapture

# What commands at other places cost beside ssh, docker and srun, and on a cluster in numbers, for docs/scale.md; takes minutes
measure-places TASKS="1000":
    cargo build --release --locked --package legwork-bench
    LEGWORK_BENCH=$PWD/target/release/legwork-bench LEGWORK_MEASURE_PLACES={{TASKS}} \
        cargo test --release --locked --package legwork-cli --test e2e -- \
        places::measure places::slurm::measure --nocapture --test-threads=1

# Known faults of dependencies, from a database on the network
advisories:
    cargo deny --locked check advisories

# The size of the code, its rooms and its widest types, each beside its budget
house:
    python3 .ci/house.py

# Accept new snapshots after looking at them
review:
    cargo insta review

# The program, optimised
build:
    cargo build --release --locked --package legwork-cli

# Find out again which functions a start and a session need, for the linker (crates/cli/order.ld); before a release, on x86_64
order: build
    python3 bench/order.py target/release/legwork

# Ratios against a raw spawn, on an idle machine; CSV and drawings into bench/
bench *ARGUMENTS:
    cargo build --release --locked --package legwork-cli --package legwork-bench
    target/release/legwork-bench --csv bench/latest.csv --svg bench/plots {{ARGUMENTS}}

# Drive the real Claude Code, Codex, Gemini CLI, opencode and Copilot CLI after `legwork setup`, with a model that follows a script
# (downloads about 1 GB from npm into target/agents)
agents:
    mkdir -p target/agents
    cp crates/cli/tests/agents/package.json target/agents/
    cd target/agents && npm install --no-audit --no-fund
    LEGWORK_AGENTS=$PWD/target/agents/node_modules cargo test --locked --package legwork-cli --test e2e -- agents:: --nocapture

# Kill an apply at random moments, 300 times, and apply 100,000 files
apply-kills ROUNDS="300":
    LEGWORK_APPLY_ROUNDS={{ROUNDS}} cargo test --locked --package legwork-cli --test e2e -- trials::killed a_hundred_thousand --nocapture

# Kill everything of ours at random moments, a thousand times, and let the rest go wrong at length: power cuts, stalls,
# pids used again, 10 GB of output (needs 10 GB of disk); LEGWORK_TORTURE_SEED repeats what was chosen
torture ROUNDS="1000":
    LEGWORK_TORTURE_ROUNDS={{ROUNDS}} LEGWORK_POWER_CUTS=40 LEGWORK_UNREAD_CALLS=2000 LEGWORK_MANY_CALLS=10000 \
        LEGWORK_FLOOD_BYTES=10000000000 cargo test --locked --package legwork-cli --test e2e -- \
        torture:: stalls:: pids:: power_cut:: read_only:: unread:: many_trivial_calls a_big_flood --nocapture --test-threads 1

# The release checklist: builds and tests every package in a fresh system, and prints what would be published (docs/releasing.md)
release *ARGUMENTS:
    packaging/release.sh {{ARGUMENTS}}
