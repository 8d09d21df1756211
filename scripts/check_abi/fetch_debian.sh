#!/usr/bin/env bash
# Unpacks Debian packages of another suite, and the libraries they need, into a folder, with an apt
# state of its own: it installs nothing and does not change the system's package lists.
#
#   fetch_debian.sh FOLDER SUITE PACKAGE… -- PACKAGE…    (after --: without what they depend on)
#
# Leaves FOLDER/root (the files) and FOLDER/packages (names and versions); does nothing when there.
set -euo pipefail

folder=$(realpath -m "$1")
suite=$2
shift 2
whole=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    whole+=("$1")
    shift
done
shift
[ -e "$folder/packages" ] && exit 0

# The mirror that this system's apt uses for its main archive.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(LABEL) $(SHORTDESC)' |
    awk '$2 == "Debian" && $3 == "Packages" { print $1; exit }')
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -z "$mirror" ] || [ ! -e "$keyring" ]; then
    echo "fetch_debian.sh: apt on this system knows no Debian archive. Run it on Debian, after apt-get update." >&2
    exit 1
fi

rm -rf "$folder"
mkdir -p "$folder"/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial,download}
touch "$folder/state/status"
echo "deb [signed-by=$keyring] $mirror $suite main" >"$folder/etc/sources.list"
# A mirror that is updated rarely holds an old list of a moving suite; signatures are still checked.
cat >"$folder/etc/apt.conf" <<CONFIG
Dir::Etc "$folder/etc";
Dir::Etc::sourcelist "$folder/etc/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$folder/state";
Dir::State::status "$folder/state/status";
Dir::Cache "$folder/cache";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
CONFIG
export APT_CONFIG=$folder/etc/apt.conf
apt-get update -qq

# An empty dpkg status makes apt name every package down to libc.
needed=$(apt-get install --print-uris -qq --yes "${whole[@]}" |
    sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p")
cd "$folder/download"
apt-get download -qq $needed "$@"

# Debian's merged /usr: what old packages still put into /lib lands in /usr/lib.
root=$folder/root
mkdir -p "$root"/usr/{lib,lib64}
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
for package in *.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
done
for package in *.deb; do
    dpkg-deb --show --showformat '${Package} ${Version}\n' "$package"
done >"$folder/packages.new"
rm -r "$folder/download" "$folder/cache"
mv "$folder/packages.new" "$folder/packages"
