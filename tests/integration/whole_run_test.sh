#!/usr/bin/env bash
# The programs as a user runs them, on real processes and sockets: a whole run with its report, a worker
# that is killed, and a run that is interrupted and resumed.
set -euo pipefail
coordinator="$PWD/coordinator/main/coordinator"
cd "$TEST_TMPDIR"
export XDG_CACHE_HOME="$TEST_TMPDIR"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Number of rows of a report's trials.csv with status OK.
ok_rows() { grep -c ",OK," "$1/report/trials.csv" || true; }

# Waits (at most 60 s) until the file has a line that matches.
wait_for_line() {
  for _ in $(seq 600); do
    grep -q "$2" "$1" 2> /dev/null && return
    sleep 0.1
  done
  cat "$1" >&2
  fail "no line '$2' in $1"
}

echo "== a whole run writes its report"
"$coordinator" --plan=builtin:quick --run_dir=quick > quick.log 2>&1 || { cat quick.log; fail "exit $?"; }
[[ "$(ok_rows quick)" == 8 ]] || fail "expected 8 OK rows, got $(ok_rows quick)"
for file in report.html trials.csv fits.csv iterations.csv layers.csv timeline.json; do
  [[ -s "quick/report/$file" ]] || fail "no $file"
done

cat > slow.textproto << 'PLAN'
name: "slow"
sweeps {
  networks: "lenet5" policies: ["bsp", "mxnet_dist_sync"] devices: 2 batch_per_device: 16
}
measurement {
  min_warmup_iterations: 2 min_iterations: 1000 max_iterations: 1000 max_measure_seconds: 60
}
PLAN

echo "== a killed worker costs an attempt, not the run"
"$coordinator" --plan=slow.textproto --run_dir=killed > killed.log 2>&1 &
pid=$!
wait_for_line killed.log "joined.*"
sleep 1.5
children=($(cat "/proc/$pid"/task/*/children))
victim="${children[0]}"
kill -KILL "$victim"
wait "$pid" || { cat killed.log; fail "exit $? after a worker was killed"; }
[[ "$(ok_rows killed)" == 2 ]] || { cat killed.log; fail "expected 2 OK rows"; }

echo "== an interrupted run keeps what it measured and resumes"
"$coordinator" --plan=slow.textproto --run_dir=interrupted > interrupted.log 2>&1 &
pid=$!
wait_for_line interrupted.log "^\[1/2\]"
kill -INT "$pid"
if wait "$pid"; then fail "an interrupted run must not look complete"; fi
grep -q "1 of 2 trials done" interrupted.log || { cat interrupted.log; fail "the first trial is lost"; }
"$coordinator" --resume --run_dir=interrupted > resumed.log 2>&1 || { cat resumed.log; fail "exit $?"; }
grep -q "2 of 2 trials done" resumed.log || { cat resumed.log; fail "not resumed to the end"; }
[[ "$(ok_rows interrupted)" == 2 ]] || fail "expected 2 OK rows after the resume"

echo "== a bad plan gets all its mistakes at once"
cat > bad.textproto << 'PLAN'
name: "bad"
sweeps { networks: "resnet5" policies: "mxnett" devices: 0 batch_per_device: -4 }
measurement { repeats: -1 }
PLAN
if "$coordinator" --plan=bad.textproto --dry_run > bad.log 2>&1; then fail "a bad plan was accepted"; fi
for part in resnet5 mxnett "devices" "batch_per_device" "repeats" "bad.textproto:2"; do
  grep -q "$part" bad.log || { cat bad.log; fail "the errors do not name $part"; }
done

# Workers inherit this folder, which tells them from those of tests that run beside this one.
for process in /proc/[0-9]*; do
  if [[ "$(cat "$process/comm" 2> /dev/null)" == worker && "$(readlink "$process/cwd")" == "$(pwd -P)" ]]; then
    fail "a worker is left running"
  fi
done
echo "PASSED"
