#!/usr/bin/env bash
# Builds both images without a registry of images, and runs them, the manifests and the units in podman (root, Debian; 8 GB
# of disk).
#
#   deploy/try-images.sh                     The images, then tests/deploy/test_containers.py and test_machine.py.
#   deploy/try-images.sh -k rolls            Only the tests that are named; the images stay from one run to the next.
#
# A Debian root from the package mirror stands in for the base, under its name. The build reads pip's configuration and the
# certificates of this machine from mounts; no image keeps them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly needed=(podman runc debootstrap nginx)
readonly root=build/base containers_conf=$PWD/build/containers.conf inside=/run/certificates.crt
for program in "${needed[@]}"; do
    command -v "$program" >/dev/null || PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || {
        echo "$0: found no $program: install the Debian packages ${needed[*]}" >&2
        exit 1
    }
done
mkdir -p build

# Limits that this machine allows: podman's own are above those of a container in a container. crun refuses cgroups of
# both versions beside each other, which runc takes.
printf '[containers]\ndefault_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]\n[engine]\nruntime = "runc"\n' \
    >"$containers_conf"
export CONTAINERS_CONF=$containers_conf

make_base() {
    local name=$1 clean=(env -i "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" "HOME=/root")
    rm -rf "$root"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-dev,python3-venv,python3-wheel-whl \
        bookworm "$root" >build/debootstrap.log
    # As in the base proper: `python`, and a pip that pip can uninstall.
    # shellcheck disable=SC2016 # the inner shell expands it
    "${clean[@]}" chroot "$root" sh -euc '
        apt-get clean
        rm -rf /var/lib/apt/lists/* /usr/lib/python3.11/EXTERNALLY-MANAGED
        ln -s /usr/bin/python3 /usr/local/bin/python
        cd /usr/share/python-wheels
        python "$(echo pip-*.whl)/pip" install --quiet --root-user-action=ignore --no-index --find-links . \
            pip setuptools wheel'
    tar --directory "$root" --create --exclude './dev/*' . | podman import --quiet --change 'CMD ["python3"]' - "$name"
    rm -rf "$root"
}

# pip finds its index and its certificates as on this machine. Not at the place of the certificates of the system: Java's
# package writes there.
write_pip_configuration() {
    local certificates=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
    { grep -v '^cert *=' /etc/pip.conf || echo '[global]'; } >build/pip.conf 2>/dev/null
    sed -i "s|^\[global\]|&\ncert = $inside|" build/pip.conf
    mounts=(--volume "$PWD/build/pip.conf:/etc/pip.conf:ro" --volume "$certificates:$inside:ro")
}

build_image() {
    local begin=$SECONDS
    # Docker's format, for OCI's has no HEALTHCHECK. --layers: a stage that did not change is not built again.
    podman build --format docker --layers --network host "${mounts[@]}" --file deploy/Containerfile \
        --ignorefile deploy/Containerfile.dockerignore --target "$1" --tag "gnomon-$1" . >"build/$1.log" 2>&1 || {
        tail --lines 30 "build/$1.log" >&2
        exit 1
    }
    echo "gnomon-$1: built in $((SECONDS - begin)) s, $(podman image inspect --format '{{.Size}}' "gnomon-$1") bytes"
}

# A machine with systemd, and both programs where the units expect them.
build_machine() {
    podman build --layers --network host "${mounts[@]}" --tag gnomon-machine - >build/machine.log 2>&1 <<'END' || {
FROM gnomon-job
USER root
RUN apt-get update && apt-get install --yes --no-install-recommends dbus systemd && rm -rf /var/lib/apt/lists/* \
    && mv /opt/gnomon /opt/gnomon-job && sed -i 's|^#!/opt/gnomon/|#!/opt/gnomon-job/|' /opt/gnomon-job/bin/gnomon \
    && userdel gnomon
COPY --from=gnomon-service /opt/gnomon /opt/gnomon
ENTRYPOINT []
CMD ["/lib/systemd/systemd"]
END
        tail --lines 30 build/machine.log >&2
        exit 1
    }
}

base=$(sed -n 's/^FROM \(.*\) AS base$/\1/p' deploy/Containerfile)
if ! podman image exists "$base"; then make_base "$base"; fi
write_pip_configuration
build_image service
build_image job
build_machine
exec .venv/bin/python -m pytest -m nightly -s tests/deploy/test_containers.py tests/deploy/test_machine.py "$@"
