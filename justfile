# The recipes that CI and people use. `just` lists them.

default:
    @just --list

# Everything a change must pass
ci:
    .ci/run

# All tests
test:
    cargo test --workspace --locked

# Formatting, lints, licences and advisories
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- --deny warnings
    cargo deny check

# Accept new snapshots after looking at them
review:
    cargo insta review

# The program, optimised
build:
    cargo build --release --locked --package legwork-cli
