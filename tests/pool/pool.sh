#!/bin/bash
# pool.sh - a real HTCondor pool on 127.0.0.1 for tests: central manager, access point and four sites.
#
#   build               fetch HTCondor and apptainer from Debian sid into the cache, once
#   up [site...]        start central manager, access point and the named sites (all of them)
#   add                 start the sites of POOL_SITES beside those of a pool that is up
#   down [site...]      stop the named sites, or everything
#   drain site...       stop sites as an administrator does: jobs get SIGTERM and their vacate time
#   crash site...       kill -9 everything at a site at once, as a lost node does
#   status              masters, slots, queue
#   env                 shell lines for a client: eval "$(tests/pool/pool.sh env)"
#   version             HTCondor's version
#   image               path of a small container image with /bin/sh and Python
#
# Exit code 3: no pool can be had on this machine; one line on stderr says why.
#
#   HEADWAY_POOL_CACHE  programs, shared by all pools (/var/cache/headway/pool for root, else
#                       ~/.cache/headway/pool)
#   POOL_HOME           logs, spool and configuration of one pool (/tmp/hwpool-$UID; keep it short)
#   POOL_PORT           port of the collector (a free one)
#   POOL_SITES          lines "name|cpus|memory in MB|GPU discovery arguments|config;config"
#   POOL_EXTRA_CM       configuration lines for central manager and access point
#   POOL_EXTRA_SITES    configuration lines for every site
#   POOL_MIRROR         a Debian mirror, where /etc/apt names none
#
# As root, the access point starts as root, as a real one does, so that a shadow is the submitter; sites and
# jobs run as hwpool. hwuser is there to submit: root and hwpool may do anything to anybody's jobs, so
# neither can stand for a user.
set -euo pipefail
umask 022
exec 3>&2
HERE=$(dirname "$(readlink -f "$0")")
HOME=${HOME:-/}
H=$(readlink -m "${POOL_HOME:-/tmp/hwpool-$UID}")
SITES=${POOL_SITES:-"CHTC-Spark-CE1|8|8192|-simulate:4,2|
PDX-Coeus-CE1|8|8192|-simulate:2,1|
GP-ARGO-ksu-backfill|2|2048||
ONE-SLOT|1|1024||"}
POOL_USER=hwpool
SUBMIT_USER=hwuser
if [ "$UID" = 0 ]; then
  OWNER=$POOL_USER
  AS_OWNER=(setpriv --reuid "$OWNER" --regid "$OWNER" --init-groups)
else
  OWNER=$(id -un)
  AS_OWNER=()
fi

cannot() { echo "pool: $*" >&3; exit 3; }
fail() { echo "pool: $*" >&3; exit 1; }
# shellcheck source=tests/pool/build.sh
. "$HERE/build.sh"

users() {
  [ "$UID" = 0 ] || return 0
  local name
  for name in $POOL_USER $SUBMIT_USER; do
    id "$name" >/dev/null 2>&1 && continue
    # two pools may start at once
    useradd --user-group --no-create-home --home-dir /nonexistent --shell /bin/sh "$name" 2>/dev/null ||
      id "$name" >/dev/null 2>&1 || cannot "cannot create the user $name"
  done
}

free_port() {
  python3 -c 'import socket as s; k = s.socket(); k.bind(("127.0.0.1", 0)); print(k.getsockname()[1])'
}

configure() { # port
  mkdir -p "$H"/{etc,cm,sites}
  [ -O "$H" ] || fail "$H belongs to somebody else"
  cp "$HERE"/conf/*.conf "$H/etc/"
  cat > "$H/etc/pool.conf" <<END
POOL_RUNTIME = $RUNTIME
POOL_PORT = $1
POOL_OWNER = $OWNER
POOL_IDS = $(id -u "$OWNER").$(id -g "$OWNER")
END
  config "$H/cm" cm.conf "" "${POOL_EXTRA_CM:-}" > "$H/etc/condor_config"
  folders "$H/cm"
  configure_sites > /dev/null
}
configure_sites() { # prints their names
  local name cpus memory gpus extra
  while IFS='|' read -r name cpus memory gpus extra; do
    [ -n "$name" ] || continue
    config "$H/sites/$name" site.conf "SITE_NAME = $name
NUM_CPUS = $cpus
MEMORY = $memory
${gpus:+SITE_GPUS = $gpus}" "${extra//;/$'\n'}
${POOL_EXTRA_SITES:-}" > "$H/etc/site-$name"
    folders "$H/sites/$name"
    echo "$name"
  done <<< "$SITES"
}
folders() { # dir
  mkdir -p "$1"/{config.d,log,spool,execute,lock,run}
  if [ "$UID" = 0 ]; then chown -R "$OWNER": "$1"; fi
}
config() { # dir, file, lines before, lines after
  printf '%s\n' "LOCAL_DIR = $1" "$3" \
    "include : $H/etc/pool.conf" "include : $H/etc/base.conf" "include : $H/etc/$2" "$4"
}

# Every process of the pool carries the folder of its master in its environment (DAGMan, to which the
# schedd gives an environment of its own, the schedd's address). That, and never its name, is what makes
# it ours; it holds for orphans too. A job that emptied its environment is known by the sandbox it
# stands in.
processes() { # dir
  {
    grep -lzsxF -e "HEADWAY_POOL_PROCESS=$1" -e "_condor_SCHEDD_ADDRESS_FILE=$1/spool/.schedd_address" \
      /proc/[0-9]*/environ || true
    find /proc/[0-9]*/cwd -maxdepth 0 -user "$OWNER" -lname "$1/execute/*" 2>/dev/null || true
  } | cut -d/ -f3 | sort -u
}
master() { # dir
  local pid
  pid=$(cat "$1/run/master.pid" 2>/dev/null) || return 0
  if grep -qzsxF "HEADWAY_POOL_PROCESS=$1" "/proc/$pid/environ"; then echo "$pid"; fi
}

start() { # dir, configuration, and what makes it another user
  [ -z "$(master "$1")" ] || return 0
  reap "$1" # what a killed master left behind
  rm -f "$1"/log/.*_address
  # nothing here forks before condor_master runs, so $! is its pid
  (cd / && exec "${@:3}" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/ CONDOR_CONFIG="$2" \
    HEADWAY_POOL_PROCESS="$1" setsid "$RUNTIME/usr/sbin/condor_master" -f) \
    < /dev/null >> "$1/log/master.out" 2>&1 3>&- &
  echo $! > "$1/run/master.pid"
  disown $!
  wait_until 5 started "$1" || true # until then it could not be told from any other process
}
started() { [ -n "$(master "$1")" ]; }
stop() { # dir, signal: QUIT is HTCondor's fast shutdown, TERM its graceful one
  local pid tries=150
  [ "$2" != TERM ] || tries=700
  pid=$(master "$1")
  if [ -n "$pid" ]; then
    kill -"$2" "$pid" 2>/dev/null || true
    until [ ! -d "/proc/$pid" ] || [ $((tries -= 1)) = 0 ]; do sleep 0.1; done
  fi
  reap "$1"
  rm -f "$1/run/master.pid"
}
reap() { # dir: kill -9 whatever is left
  local pids tries=200
  while pids=$(processes "$1") && [ -n "$pids" ]; do
    [ $((tries -= 1)) -gt 0 ] || fail "cannot kill ${pids//$'\n'/ }"
    # shellcheck disable=SC2086  # a list of numbers
    kill -KILL $pids 2>/dev/null || true
    sleep 0.05
  done
}

condor() { CONDOR_CONFIG=$H/etc/condor_config "$RUNTIME/usr/bin/condor_$1" "${@:2}" 2>/dev/null; }
sites() { (cd "$H/sites" 2>/dev/null && printf '%s\n' *); }
wait_until() { # seconds, command...
  local tries=$(($1 * 50)); shift
  until "$@"; do
    [ $((tries -= 1)) -gt 0 ] || return 1
    sleep 0.02
  done
}

up() {
  build
  users
  "${AS_OWNER[@]}" test -x "$RUNTIME/usr/sbin/condor_master" ||
    cannot "$OWNER cannot read $CACHE (HEADWAY_POOL_CACHE can name another folder)"
  if [ -z "$(master "$H/cm")" ]; then up_cm; fi
  local site
  if [ $# = 0 ]; then mapfile -t sites < <(sites); set -- "${sites[@]}"; fi
  for site in "$@"; do
    [ -d "$H/sites/$site" ] || fail "no site $site, only: $(sites | tr '\n' ' ')"
    start "$H/sites/$site" "$H/etc/site-$site" "${AS_OWNER[@]}"
  done
  wait_until 30 all_up "$@" || fail "not everything came up, see $H/cm/log and $H/sites/*/log"
}
add() {
  local new
  mapfile -t new < <(configure_sites)
  up "${new[@]}"
}
up_cm() {
  local port
  # a port found free may be taken by the time it is used
  for port in ${POOL_PORT:-$(free_port) $(free_port) $(free_port)}; do
    configure "$port"
    start "$H/cm" "$H/etc/condor_config"
    if wait_until 10 cm_answers_or_died && [ -n "$(master "$H/cm")" ]; then return; fi
    stop "$H/cm" QUIT
  done
  fail "the central manager did not come up, see $H/cm/log"
}
# sites started before the collector listens would tell it of themselves five seconds later
cm_answers_or_died() { [ -s "$H/cm/log/.collector_address" ] || [ -z "$(master "$H/cm")" ]; }
# with the address, since a site that crashed stays on the collector's list under its old one
all_up() { # site...
  local seen want site
  want=("Scheduler $(head -1 "$H/cm/spool/.schedd_address" 2>/dev/null)") || return 1
  for site in "$@"; do
    want+=("Machine $(head -1 "$H/sites/$site/log/.startd_address" 2>/dev/null)") || return 1
  done
  seen=$'\n'$(condor status -any -af MyType MyAddress)$'\n'
  for site in "${want[@]}"; do [[ $seen == *$'\n'"$site"$'\n'* ]] || return 1; done
}

down() { # [site...]
  each QUIT "$@"
  if [ $# = 0 ] && [ -d "$H/cm" ]; then stop "$H/cm" QUIT; fi
}
drain() { each TERM "$@"; }
crash() { each KILL "$@"; }
each() { # signal, site...
  local signal=$1 site; shift
  if [ $# = 0 ]; then mapfile -t sites < <(sites); set -- "${sites[@]}"; fi
  for site in "$@"; do
    [ -d "$H/sites/$site" ] || fail "no site $site, only: $(sites | tr '\n' ' ')"
  done
  for site in "$@"; do
    if [ "$signal" = KILL ]; then reap "$H/sites/$site" & else stop "$H/sites/$site" "$signal" & fi
  done
  wait
}

status() {
  local dir
  for dir in "$H/cm" "$H"/sites/*; do
    [ -d "$dir" ] && echo "${dir##*/}: master $(master "$dir")"
  done
  condor status -af:h Name GLIDEIN_ResourceName State Activity Cpus Memory TotalGPUs || true
  condor q -totals || true
}
env_lines() {
  [ -e "$H/etc/condor_config" ] || fail "no pool at $H"
  echo "export CONDOR_CONFIG=$H/etc/condor_config POOL_HOME=$H PATH=$RUNTIME/usr/bin:$RUNTIME/usr/sbin:\$PATH"
}

command=${1:-help}
shift || true
case $command in
  build | up | add | down | drain | crash | status) "$command" "$@" ;;
  env) env_lines ;;
  version) build && "$RUNTIME/usr/bin/condor_version" | sed -n 's/.*CondorVersion: \([0-9.]*\).*/\1/p' ;;
  image) build && echo "$CACHE/image.sif" ;;
  *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2 ;;
esac
