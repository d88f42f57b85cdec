"""An independent reader of container images, as files in a tar: checks what an image's layout promises, and unpacks it.

Image(path) reads and checks all; unpack(folder) lays out its layers.

Units: bytes.
Source: OCI Image Format 1.0.2: image layout, descriptor, manifest, configuration, layer.
"""

import gzip
import hashlib
import io
import json
import os
import tarfile

MEDIA = "application/vnd.oci.image."


class Image:
    """An image of one machine; an assertion fails where the file is no good."""

    def __init__(self, path):
        with tarfile.open(path) as tar:
            members = tar.getmembers()
            names = [member.name for member in members]
            assert len(names) == len(set(names)), "a name twice"
            assert all(member.isdir() or member.isreg() for member in members)
            self.files = {member.name: tar.extractfile(member).read() for member in members if member.isreg()}
        assert json.loads(self.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
        for name, data in self.files.items():
            if name.startswith("blobs/"):
                assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}", name
        self.read()

    def blob(self, descriptor, kind):
        """What a descriptor points to; digest and size fit."""
        assert descriptor["mediaType"] == MEDIA + kind, descriptor
        algorithm, digest = descriptor["digest"].split(":")
        data = self.files[f"blobs/{algorithm}/{digest}"]
        assert len(data) == descriptor["size"], descriptor
        return data

    def read(self):
        """Follows the index to manifest, configuration and layers."""
        self.index = json.loads(self.files["index.json"])
        assert self.index["schemaVersion"] == 2
        (listed,) = self.index["manifests"]
        manifest = json.loads(self.blob(listed, "manifest.v1+json"))
        assert manifest["schemaVersion"] == 2 and manifest["mediaType"] == listed["mediaType"]
        self.config = json.loads(self.blob(manifest["config"], "config.v1+json"))
        assert listed["platform"] == {key: self.config[key] for key in ("architecture", "os")}
        packed = [self.blob(layer, "layer.v1.tar+gzip") for layer in manifest["layers"]]
        self.layers = [gzip.decompress(data) for data in packed]
        digests = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in self.layers]
        assert self.config["rootfs"] == {"type": "layers", "diff_ids": digests}
        assert len([one for one in self.config["history"] if not one.get("empty_layer")]) == len(digests)
        reached = {f"blobs/sha256/{one['digest'].split(':')[1]}" for one in (listed, manifest["config"])}
        reached |= {f"blobs/sha256/{one['digest'].split(':')[1]}" for one in manifest["layers"]}
        assert reached == {name for name in self.files if name.startswith("blobs/")}, "a blob that nothing names"

    def entries(self):
        """Members of the layers, in order."""
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                yield from tar.getmembers()

    def unpack(self, folder):
        """Lays the layers out below a folder."""
        for member in self.entries():
            assert not os.path.isabs(member.name) and ".." not in member.name.split("/"), member.name
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                tar.extractall(folder)

    def command(self):
        """What a container of it runs."""
        return self.config["config"]["Entrypoint"], self.config["config"]["Cmd"]
