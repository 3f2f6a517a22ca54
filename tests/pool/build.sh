# shellcheck shell=bash
# build.sh - the programs of the test pool, from Debian's packages. Sourced by pool.sh.
#
#   $CACHE/runtime    HTCondor, apptainer and every library they need, down to libc
#   $CACHE/image      a small Debian with /bin/sh and Python, as a folder
#   $CACHE/image.sif  the same as one file
#
# The packages come from sid, whatever the machine runs, so nothing of the machine's own libraries can
# be used: each program is given the runtime's own loader and library path (patchelf). Those are absolute
# paths, so the runtime belongs to one place; .prefix remembers which.

CACHE=${HEADWAY_POOL_CACHE:-}
if [ -z "$CACHE" ]; then
  # root's home is closed to the pool user, who has to run these programs
  if [ "$(id -u)" = 0 ]; then CACHE=/var/cache/headway/pool; else CACHE=$HOME/.cache/headway/pool; fi
fi
RUNTIME=$CACHE/runtime
MULTIARCH=x86_64-linux-gnu

build() {
  built && return
  [ "$(uname -sm)" = "Linux x86_64" ] || cannot "needs Linux on x86_64, this is $(uname -sm)"
  local tool
  for tool in apt-get apt-cache apt-config dpkg-deb flock timeout; do
    command -v $tool >/dev/null || cannot "$tool is not installed"
  done
  mkdir -p "$CACHE" 2>/dev/null && [ -w "$CACHE" ] || cannot "cannot write to $CACHE"
  exec 9> "$CACHE/lock"
  flock -w 600 9 || cannot "another build has held $CACHE/lock for ten minutes"
  if ! built; then
    # whatever goes wrong below without a reason of its own
    trap 'cannot "the build broke off, see $CACHE/build.log"' ERR
    build_locked > "$CACHE/build.log" 2>&1
    trap - ERR
  fi
  exec 9>&-
}

built() { [ "$(cat "$RUNTIME/.prefix" 2>/dev/null)" = "$RUNTIME" ] && [ -e "$CACHE/image.sif" ]; }

# Everything is made in new/ and renamed when whole, so that a build cut off half way leaves nothing that
# looks built. Runs under the lock, so whatever lies in new/ is nobody's.
build_locked() {
  local new=$CACHE/new
  rm -rf "$new" "$RUNTIME" "$CACHE"/image "$CACHE"/image.sif
  mkdir -p "$new"/{apt,debs,runtime,image}
  apt_setup "$new/apt"
  timeout 60 apt-get -q update ||
    cannot "no package lists from the Debian mirror $(mirror) ($(apt_error))"
  local programs=(condor apptainer squashfs-tools patchelf)
  local image=(python3-minimal libpython3-stdlib dash coreutils sed grep)
  fetch "$new/debs" "${programs[@]}" "${image[@]}"
  unpack "$new/debs" "$new/runtime" "${programs[@]}"
  unpack "$new/debs" "$new/image" "${image[@]}"
  patch_programs "$new/runtime"
  tidy_image "$new/image"
  echo "$RUNTIME" > "$new/runtime/.prefix"
  mv "$new/runtime" "$RUNTIME"
  mv "$new/image" "$CACHE/image"
  "$RUNTIME/usr/bin/condor_version" || cannot "condor_version does not start, see $CACHE/build.log"
  # what a site tries at start to find out whether it can run .sif files; Debian leaves it out
  local libexec=$RUNTIME/usr/libexec/condor
  make_sif "$libexec/singularity_test_sandbox" "$libexec/exit_37.sif"
  make_sif "$CACHE/image" "$new/image.sif"
  mv "$new/image.sif" "$CACHE/image.sif"
  rm -rf "$new"
}

make_sif() { # dir, file
  # apptainer writes to the home of whoever runs it; its own choice of compression takes ten times as long
  HOME=$CACHE/new timeout 120 "$RUNTIME/usr/bin/apptainer" build \
    --mksquashfs-args "-comp zstd -Xcompression-level 1" "$2" "$1" ||
    cannot "apptainer cannot make an image, see $CACHE/build.log"
}

# The Debian mirror that this machine is set up to use.
mirror() {
  if [ -n "${POOL_MIRROR:-}" ]; then echo "$POOL_MIRROR"; return; fi
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null |
    sed 's/#.*//' | grep -oE '(https?|file):/[^ ]*/debian/?( |$)' | head -1 | tr -d ' ' || true
}

# An apt of our own: empty system, one suite, the machine's proxies but none of its hooks.
apt_setup() { # dir
  local apt=$1 keys=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -n "$(mirror)" ] || cannot "no Debian mirror in /etc/apt (POOL_MIRROR can name one)"
  [ -e $keys ] || cannot "$keys is missing (package debian-archive-keyring)"
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,parts}
  : > "$apt/status"
  echo "deb [signed-by=$keys arch=amd64] $(mirror) sid main" > "$apt/sources.list"
  {
    apt-config dump | grep '^Acquire::' | grep -v '^Acquire::IndexTargets' || true
    cat <<END
Dir::Etc::main "/dev/null"; Dir::Etc::parts "$apt/parts";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "$apt/parts";
Dir::State "$apt"; Dir::State::status "$apt/status"; Dir::Cache "$apt/cache";
APT::Architecture "amd64"; APT::Architectures { "amd64"; };
APT::Sandbox::User "root"; APT::Update::Error-Mode "any";
Acquire::Languages "none"; Acquire::Retries "1";
Acquire::http::Timeout "20"; Acquire::https::Timeout "20";
END
  } > "$apt/apt.conf"
  export APT_CONFIG=$apt/apt.conf
}

apt_error() { # the first complaint, else (killed by timeout) that there was none
  local line
  line=$(grep -m1 -E '^[EW]: ' "$CACHE/build.log") || line="W: no answer in time"
  echo "${line:3:200}"
}

# The named packages and the libraries they ask for, found by walking the dependencies, since the names
# of library packages change. Only libraries are followed: no perl, no systemd, no debconf.
closure() { # package...
  local seeds
  seeds=$(apt-cache depends --important "$@" | sed -nE 's/^[ |]*(Pre)?Depends: //p' | libraries)
  # shellcheck disable=SC2086  # a list of words
  { printf '%s\n' "$@"; apt-cache depends --recurse --important $seeds | libraries; } | sort -u
}
libraries() { # of the lines, those that name a library package
  grep -xE '(lib|zlib)[a-z0-9.+-]+|python3\.[0-9]+-minimal' |
    grep -vE -- '-perl$|^lib(perl|js-|pam|systemd|audit|c-)'
}

fetch() { # dir package...
  local dir=$1 names; shift
  names=$(closure "$@")
  # shellcheck disable=SC2086  # a list of words
  (cd "$dir" && timeout 300 apt-get -q download $names) ||
    cannot "no packages from the Debian mirror $(mirror) ($(apt_error))"
}

unpack() { # debs dir package...
  local debs=$1 dir=$2 name; shift 2
  for name in $(closure "$@"); do dpkg-deb -x "$debs/$name"_*.deb "$dir"; done
  rm -rf "$dir"/usr/share/{doc,man,locale,zoneinfo,lintian,bash-completion}
}

# Gives every program under new the loader and libraries of the place where it will stand.
patch_programs() { # new
  local new=$1 file
  local lib=usr/lib/$MULTIARCH
  local loader=$lib/ld-linux-x86-64.so.2
  local path=$RUNTIME/$lib:$RUNTIME/usr/lib:$RUNTIME/usr/lib/condor
  mv "$new/usr/bin/patchelf" "$new/../patchelf"
  patchelf() { "$new/$loader" --library-path "$new/$lib" "$new/../patchelf" "$@"; }
  while IFS= read -r file; do
    patchelf --print-interpreter "$file" >/dev/null 2>&1 || continue  # a script, or static
    patchelf --set-interpreter "$RUNTIME/$loader" --force-rpath --set-rpath "$path" "$file"
  done < <(find "$new"/usr/{bin,sbin,libexec} "$new/$lib/apptainer" -type f -perm -u+x)
  for file in "$new"/usr/lib/lib{condor_utils,classad}*.so*; do
    [ -L "$file" ] || patchelf --force-rpath --set-rpath "$path" "$file"
  done
  # apptainer looks for its files relative to itself, and spells its prefix in two ways
  sed -i "s|^# binary path = *|binary path = $RUNTIME/usr/bin:\$PATH:|" "$new/etc/apptainer/apptainer.conf"
  mkdir -p "$new"/usr/etc "$new"/usr/lib/{etc,var/lib/apptainer/mnt/session}
  cp -a "$new/etc/apptainer" "$new/usr/etc/"
  cp -a "$new/etc/apptainer" "$new/usr/lib/etc/"
}

# What the packages' own install scripts would have done.
tidy_image() { # dir
  local dir=$1 name
  for name in bin sbin lib lib64; do [ -e "$dir/$name" ] || ln -s "usr/$name" "$dir/$name"; done
  [ -e "$dir/usr/bin/sh" ] || ln -s dash "$dir/usr/bin/sh"
  mkdir -p "$dir"/{dev,proc,sys,tmp,root,home,srv,var/tmp,etc,usr/sbin}
  chmod 1777 "$dir/tmp" "$dir/var/tmp"
  echo 'root:x:0:0:root:/root:/bin/sh' > "$dir/etc/passwd"
  echo 'root:x:0:' > "$dir/etc/group"
  echo 'NAME="Headway test image"' > "$dir/etc/os-release"
  : > "$dir/etc/resolv.conf"; : > "$dir/etc/hosts"
}
