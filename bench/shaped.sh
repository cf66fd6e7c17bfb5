#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gives each worker and each shard its own network namespace behind a link that is shaped in both directions, like a
# separate machine. A bridge joins all links. Runs `sluice bench exchange` there, or any other command.
#
# usage: bench/shaped.sh --workers N --shards K --rate RATE [--up-rate RATE] [--delay TIME] [--bin DIR] -- [ARGUMENTS OF bench exchange]
#        bench/shaped.sh --workers N --shards K --rate RATE [--up-rate RATE] [--delay TIME] --exec COMMAND [ARGUMENT...]
#        bench/shaped.sh --set RATE [--of PID]
#
#   --rate RATE    rate of every link in each direction: 200mbit, 1gbit, 2.5gbit (kbit, mbit, gbit; decimal). "none"
#                  disables shaping.
#   --up-rate RATE a lower rate at which workers send, as on a home's link; --set gives both directions one rate
#   --delay TIME   one-way delay between any two processes: 500us, 5ms; on kernels without netem, bench/delay_switch.py
#                  delays frames, which suffices for links of 200 Mb/s
#   --bin DIR      folder of sluice and sluice-server (default: build/release/bin)
#   --exec         run this command instead, in the bridge's namespace, with this environment:
#                    SHAPED_WORKERS, SHAPED_SHARDS               number of workers and shards
#                    SHAPED_WORKER_HOSTS, SHAPED_SERVER_HOSTS    their addresses, separated by commas
#                    SHAPED_RATE                                 the initial rate
#                  `ip netns exec w0 COMMAND` runs as worker 0, `ip netns exec s1 COMMAND` as shard 1.
#   --set RATE     change the links of a running measurement. PID is that of its shaped.sh, which prints it. The command
#                  of --exec does not need --of.
#
# Needs root, or a kernel that lets users make namespaces. Everything is in namespaces of one process's descendants, so
# the kernel removes all of it when that process ends for any reason. Nothing is left on the machine, and runs do not
# affect each other. Exits with the status of the command, with 2 for wrong arguments, and with 77 if namespaces or links
# cannot be made here.
set -euo pipefail

self=$(readlink -f "${BASH_SOURCE[0]}")
readonly self
readonly grace_seconds=10
readonly processes_max=250

fail() {  # fail STATUS MESSAGE
  printf 'shaped.sh: %s\n' "$2" >&2
  exit "$1"
}
usage() { sed -n '2,/^set -/s/^# \{0,1\}//p' "$self"; }

# --- Links. These functions run inside, where /run/netns has only the names of this run. ---

# Size of a burst in bytes: 2 ms at the rate, but at least 256 KiB, which is four of the largest packets of TCP.
burst_of() {
  awk -v rate="$1" 'BEGIN {
    value = rate + 0; unit = rate; sub(/^[0-9.]+/, "", unit)
    scale = unit == "gbit" ? 1e9 : unit == "mbit" ? 1e6 : 1e3
    bytes = value * scale / 8 * 0.002
    printf "%d", (bytes > 262144 ? bytes : 262144) }'
}

shape_device() {  # shape_device NAMESPACE DEVICE RATE PARENT
  if [ "$3" = none ]; then
    tc -n "$1" qdisc del dev "$2" "${@:4}" 2>/dev/null || true  # There may be no qdisc.
  else
    tc -n "$1" qdisc replace dev "$2" "${@:4}" handle 10: tbf rate "$3" burst "$(burst_of "$3")" latency 50ms
  fi
}

set_rate() {  # set_rate RATE [UP_RATE]. A process sends through eth0 and receives through its port of the bridge.
  local name parent sent
  for name in $(ip netns list | awk '$1 != "bridge" {print $1}'); do
    parent=root
    if tc -n "$name" qdisc show dev eth0 | grep -q netem; then parent='parent 1:1'; fi
    sent=$1
    if [[ $name = w* ]]; then sent=${2:-$1}; fi
    # shellcheck disable=SC2086  # Two words.
    shape_device "$name" eth0 "$sent" $parent
    shape_device bridge "to-$name" "$1" root
  done
}

add_process() {  # add_process NAME ADDRESS
  ip netns add "$1"
  ip -n "$1" link set lo up
  ip -n bridge link add name "to-$1" type veth peer name eth0 netns "$1"
  if [ "$switch" = bridge0 ]; then ip -n bridge link set "to-$1" master bridge0; fi
  ip -n bridge link set "to-$1" addrgenmode none up
  ip -n "$1" link set eth0 addrgenmode none up
  ip -n "$1" address add "$2/16" dev eth0
}

make_links() {
  # A separate file system for the state of `ip netns`, so that names of other runs do not conflict.
  local folder=/run/netns
  [ -d "$folder" ] || folder=/run
  mount -t tmpfs shaped "$folder"
  ip netns attach bridge $$
  ip -n bridge link set lo up
  if [ "$switch" = bridge0 ]; then
    ip -n bridge link add name bridge0 type bridge stp_state 0
  else
    ip -n bridge link add name bridge0 type veth peer name to-bridge
    ip -n bridge link set to-bridge addrgenmode none up
  fi
  ip -n bridge link set bridge0 addrgenmode none up
  ip -n bridge address add 10.77.255.254/16 dev bridge0
  local i
  for ((i = 0; i < shards; ++i)); do add_process "s$i" "10.77.0.$((i + 1))"; done
  for ((i = 0; i < workers; ++i)); do add_process "w$i" "10.77.1.$((i + 1))"; done
  if [ "$delay" != none ] && [ "$switch" = bridge0 ]; then
    local name
    for name in $(ip netns list | awk '$1 != "bridge" {print $1}'); do
      tc -n "$name" qdisc add dev eth0 root handle 1: netem delay "$delay" limit 100000
    done
  fi
  set_rate "$rate" "$up_rate"
}

has_netem() {
  tc qdisc add dev lo root netem delay 1ms 2>/dev/null && tc qdisc del dev lo root
}

start_switch() {  # The switch of kernels without netem.
  local ports=(to-bridge) i
  for ((i = 0; i < shards; ++i)); do ports+=("to-s$i"); done
  for ((i = 0; i < workers; ++i)); do ports+=("to-w$i"); done
  python3 "$(dirname "$self")/delay_switch.py" "$delay" "${ports[@]}" &
}

hosts() {  # hosts PREFIX COUNT
  local list='' i
  for ((i = 1; i <= $2; ++i)); do list+=${list:+,}$1.$i; done
  printf '%s' "$list"
}

# --- The first process inside. When it ends, the kernel ends all others. ---

run_inside() {
  trap 'exit 143' INT TERM HUP
  local errors switch=bridge0
  if [ "$delay" != none ] && ! has_netem; then switch=delay_switch; fi
  errors=$( (make_links) 2>&1) || fail 77 "cannot make links here: ${errors//$'\n'/; }"
  if [ "$switch" = delay_switch ]; then start_switch; fi
  export SHAPED_WORKERS=$workers SHAPED_SHARDS=$shards SHAPED_RATE=$rate
  SHAPED_WORKER_HOSTS=$(hosts 10.77.1 "$workers")
  SHAPED_SERVER_HOSTS=$(hosts 10.77.0 "$shards")
  export SHAPED_WORKER_HOSTS SHAPED_SERVER_HOSTS
  local plural_w=s plural_s=s what="links of $rate"
  [ "$workers" != 1 ] || plural_w=
  [ "$shards" != 1 ] || plural_s=
  [ "$rate" != none ] || what="links that are not shaped"
  printf 'shaped.sh: %s worker%s and %s shard%s behind %s; to change it: %s --set RATE --of %s\n' \
    "$workers" "$plural_w" "$shards" "$plural_s" "$what" "$self" "$outer" >&2
  if [ "$mode" = exchange ]; then
    local link_rate=(--link-rate "$rate")
    [ "$rate" != none ] || link_rate=()
    set -- "$bin/sluice" bench exchange --workers "$workers" --shards "$shards" \
      --wrap-worker 'ip netns exec w{}' --wrap-server 'ip netns exec s{}' \
      --server-hosts "$SHAPED_SERVER_HOSTS" "${link_rate[@]}" "$@"
  fi
  local signal command=
  for signal in INT TERM HUP; do
    # shellcheck disable=SC2064  # Expand the signal's name now.
    trap "interrupted=yes; [ -z \"\$command\" ] || kill -$signal \"\$command\" 2>/dev/null || true" "$signal"
  done
  # Otherwise the shell would make a background command ignore SIGINT.
  env --default-signal=INT,QUIT -- "$@" <&0 &
  command=$!
  finish_of "$command"
}

finish_of() {  # Exits with the status of process PID. A signal with a trap sets `interrupted` and ends `wait`, but not this process.
  local status
  while true; do
    interrupted=
    status=0
    wait "$1" || status=$?
    [ -n "$interrupted" ] || exit "$status"
  done
}

# --- Outside ---

child_of() {
  local stat fields
  for stat in /proc/[0-9]*/stat; do
    { read -r fields <"$stat"; } 2>/dev/null || continue
    fields=${fields##*) }
    # shellcheck disable=SC2086  # Words: state, parent and more.
    set -- "$1" $fields
    if [ "$3" = "$1" ]; then basename "${stat%/stat}"; return 0; fi  # In a trap a bare `return` fails.
  done
  return 1
}

set_from_outside() {
  local parent first
  if [ -n "${SHAPED_RATE:-}" ] && [ -z "$of" ]; then set_rate "$1"; return; fi
  [ -n "$of" ] || fail 2 "--set needs --of PID, the PID that the shaped.sh to change printed"
  parent=$(child_of "$of") && first=$(child_of "$parent") &&
    tr '\0' ' ' <"/proc/$first/cmdline" | grep -q -- " --inside $of " ||
    fail 2 "process $of is not a running shaped.sh"
  local user=(--user --preserve-credentials)
  [ "$(id -u)" != 0 ] || user=()
  nsenter --target "$first" "${user[@]}" --mount --net --pid -- bash "$self" --set-inside "$1"
}

run_outside() {
  local tool
  for tool in ip tc unshare setpriv setsid nsenter; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
      fail 77 "$tool is missing (Debian: apt-get install iproute2 util-linux)"
  done
  local user=()
  [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
  local apart=(unshare "${user[@]}" --mount --net --pid --fork --kill-child --mount-proc)
  local errors
  errors=$("${apart[@]}" true 2>&1) ||
    fail 77 "cannot make namespaces here (${errors//$'\n'/; }); on most machines, root can"
  # In a separate session, so that a terminal's Ctrl-C reaches only this process, which forwards it once. If this process
  # is killed, the kernel kills `unshare`, therefore the first process inside, and therefore all others.
  env --default-signal=INT,QUIT setsid setpriv --pdeathsig KILL "${apart[@]}" -- \
    bash "$self" --inside $$ "$mode" "$workers" "$shards" "$rate" "$up_rate" "$delay" "$bin" "$@" <&0 &
  local inside=$! signal
  for signal in INT TERM HUP; do
    # shellcheck disable=SC2064
    trap "interrupted=yes; stop_inside $inside $signal" "$signal"
  done
  finish_of "$inside"
}

stop_inside() {  # stop_inside PID SIGNAL: sends SIGNAL, and SIGKILL after the grace period.
  local first tenths
  if first=$(child_of "$1"); then kill "-$2" "$first" 2>/dev/null || true; fi
  for ((tenths = 0; tenths < 10 * grace_seconds; ++tenths)); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
}

check_rate() {
  [[ $1 =~ ^([0-9]+(\.[0-9]+)?(kbit|mbit|gbit)|none)$ ]] ||
    fail 2 "\"$1\" is not a rate: use one like 200mbit, 1gbit or 2.5gbit, or none"
}
check_count() {  # check_count OPTION VALUE
  [[ $2 =~ ^[1-9][0-9]{0,2}$ ]] && [ "$2" -le "$processes_max" ] ||
    fail 2 "$1 must be a number from 1 to $processes_max, not \"$2\""
}

PATH=$PATH:/usr/sbin:/sbin
workers='' shards='' rate='' up_rate='' delay=none bin=$(dirname "$self")/../build/release/bin mode='' to_set='' of=''
case "${1:-}" in
  --inside)  # Not for users: `run_outside` starts this.
    outer=$2 mode=$3 workers=$4 shards=$5 rate=$6 up_rate=$7 delay=$8 bin=$9
    shift 9
    run_inside "$@" ;;
  --set-inside) set_rate "$2"; exit ;;
  "" | -h | --help) usage; [ -n "${1:-}" ] || exit 2; exit 0 ;;
esac
while [ $# -gt 0 ] && [ -z "$mode" ]; do
  case "$1" in
    --) mode=exchange; shift; break ;;
    --exec) mode='exec'; shift; break ;;
    --workers | --shards | --rate | --up-rate | --delay | --bin | --set | --of)
      [ $# -ge 2 ] || fail 2 "$1 needs a value"
      case "$1" in
        --workers) check_count "$1" "$2"; workers=$2 ;;
        --shards) check_count "$1" "$2"; shards=$2 ;;
        --rate) check_rate "$2"; rate=$2 ;;
        --up-rate) check_rate "$2"; up_rate=$2 ;;
        --delay)
          [[ $2 =~ ^[0-9]+(\.[0-9]+)?(us|ms|s)$ ]] || fail 2 "\"$2\" is not a time: use one like 500us or 5ms"
          delay=$2
          if [[ $2 =~ ^[0.]+[a-z]+$ ]]; then delay=none; fi ;;
        --bin) bin=$2 ;;
        --set) check_rate "$2"; to_set=$2 ;;
        --of) of=$2 ;;
      esac
      shift 2 ;;
    *) fail 2 "no such argument: $1 (put the arguments of \`sluice bench exchange\` after --)" ;;
  esac
done
if [ -n "$to_set" ]; then set_from_outside "$to_set"; exit; fi
[ -n "$workers" ] && [ -n "$shards" ] && [ -n "$rate" ] || fail 2 "--workers, --shards and --rate are needed; see --help"
[ -n "$mode" ] || fail 2 "end with -- and arguments of \`sluice bench exchange\`, or with --exec and a command"
if [ "$mode" = exec ]; then [ $# -gt 0 ] || fail 2 "--exec needs a command"; fi
if [ "$mode" = exchange ]; then
  bin=$(readlink -f "$bin") && [ -x "$bin/sluice" ] ||
    fail 2 "there is no sluice in $bin: build it (ninja -C build/release sluice sluice-server) or say where with --bin"
fi
run_outside "$@"
