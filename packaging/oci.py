#!/usr/bin/env python3
"""Writes an image for containers with the static binary alone, without a daemon: `make image`.

oci.py BINARY OUT [--version TEXT] -> a tar of the OCI image layout, which `podman load` and `docker load` read:
one layer with /weft, LICENSE, and folders to write to; the same input gives the same bytes.

Units: bytes; seconds since 1970 ($SOURCE_DATE_EPOCH, else 0).
Source: OCI Image Format 1.0.2 (image-layout, manifest, config, layer); gABI "ELF Header"; for docker before 25 the
manifest.json of `docker save`. docs/lab.md "The image".
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import struct
import sys
import tarfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME = "weft:latest"
# What it does when nothing else is said: a switch between all interfaces but the management's.
ENTRYPOINT, COMMAND = ["/weft"], ["run", "--ports", "eth[1-9]*"]
# Numbers of machines in ELF, as OCI calls them.
MACHINES = {0x3E: "amd64", 0xB7: "arm64"}
PT_INTERP = 3
# Folders, with their modes: for sockets, for files of users, for configurations.
FOLDERS = {"etc": 0o755, "etc/weft": 0o755, "run": 0o755, "tmp": 0o1777}


class NotStatic(Exception):
    """The binary cannot be the only file of an image."""


def architecture(binary):
    """What machine a 64-bit, little-endian, static ELF file is for."""
    if binary[:6] != b"\x7fELF\x02\x01" or len(binary) < 64:
        raise NotStatic("expected a 64-bit little-endian ELF file")
    machine, headers = struct.unpack_from("<H", binary, 18)[0], struct.unpack_from("<Q", binary, 32)[0]
    size, count = struct.unpack_from("<HH", binary, 54)
    if machine not in MACHINES:
        raise NotStatic(f"expected a machine of {sorted(MACHINES.values())}, found number {machine}")
    for at in range(headers, headers + size * count, size or 1):
        if at + 4 > len(binary):
            raise NotStatic("program headers lie outside of the file")
        if struct.unpack_from("<I", binary, at)[0] == PT_INTERP:
            raise NotStatic("it needs a loader and shared libraries: build it for a musl target")
    return MACHINES[machine]


def entry(name, mode, when, data=None):
    """An entry of a tar, owned by root: a file with `data`, or a folder."""
    info = tarfile.TarInfo(name)
    info.mode, info.mtime, info.uname, info.gname = mode, when, "root", "root"
    info.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
    info.size = len(data or b"")
    return info, io.BytesIO(data or b"")


def archive(entries, when):
    """A tar of (name, mode, data) as bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, mode, data in entries:
            tar.addfile(*entry(name, mode, when, data))
    return out.getvalue()


def as_json(value):
    """A document's bytes."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def image(binary, version, when, licence):
    """All files of the image's layout: name to bytes."""
    machine = architecture(binary)
    files = [("LICENSE", 0o644, licence), ("weft", 0o755, binary)]
    layer = archive([(name, mode, None) for name, mode in FOLDERS.items()] + files, when)
    packed = gzip.compress(layer, compresslevel=9, mtime=0)
    blobs = {}

    def blob(kind, data, **more):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data), **more}

    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    labels = {
        "org.opencontainers.image.title": "weft",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    described = {
        "architecture": machine,
        "os": "linux",
        "created": created,
        "config": {"Entrypoint": ENTRYPOINT, "Cmd": COMMAND, "Labels": labels, "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "created_by": "packaging/oci.py"}],
    }
    config = blob("config.v1+json", as_json(described))
    layers = [blob("layer.v1.tar+gzip", packed)]
    media = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": media, "config": config, "layers": layers}
    names = {"io.containerd.image.name": f"docker.io/library/{NAME}", "org.opencontainers.image.ref.name": NAME}
    platform = {"architecture": machine, "os": "linux"}
    listed = blob("manifest.v1+json", as_json(manifest), annotations=names, platform=platform)
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [listed]}

    def path(descriptor):
        return "blobs/sha256/" + descriptor["digest"].split(":")[1]

    docker = [{"Config": path(config), "RepoTags": [NAME], "Layers": [path(layers[0])]}]
    return {
        "oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": as_json(index),
        "manifest.json": as_json(docker),
        **blobs,
    }


def main():
    """Writes the file, whole or not at all."""
    parser = argparse.ArgumentParser(description="Write an OCI image with one static binary.")
    parser.add_argument("binary")
    parser.add_argument("out")
    parser.add_argument("--version", default="unknown")
    args = parser.parse_args()
    when = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    try:
        with open(args.binary, "rb") as file, open(os.path.join(ROOT, "LICENSE"), "rb") as licence:
            files = image(file.read(), args.version, when, licence.read())
    except NotStatic as why:
        sys.exit(f"oci.py: {args.binary}: {why}")
    folders = [(name, 0o755, None) for name in ("blobs", "blobs/sha256")]
    data = archive(folders + [(name, 0o644, data) for name, data in files.items()], when)
    os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
    part = f"{args.out}.part"
    with open(part, "wb") as file:
        file.write(data)
    os.replace(part, args.out)
    print(f"{args.out}: {len(data)} bytes, {NAME}, {architecture_of(files)}")


def architecture_of(files):
    """The machine that the image's index names."""
    return json.loads(files["index.json"])["manifests"][0]["platform"]["architecture"]


if __name__ == "__main__":
    main()
