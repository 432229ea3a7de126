#!/bin/sh
# Runs the steps of a CI job under the policy beside this file, each given as one argument:
#
#     check.sh 'make build' 'make test'
#
# The first step that fails ends the job with its exit code; 126 means that a rule said no. What was
# run, and what it printed, stays in $LEGWORK_STATE, which a job can keep as an artifact.
set -eu
policy=$(dirname "$0")/policy.toml
: "${LEGWORK_STATE:=$PWD/.legwork-state}"
export LEGWORK_STATE

report() {
    code=$?
    echo "== what ran"
    legwork ps -n 100
    legwork audit verify
    exit "$code"
}
trap report EXIT

for step; do
    echo "== $step"
    legwork sh --policy "$policy" "$step"
done
