#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pushes a packed chart to an OCI registry on this machine, pulls it and renders it from there. The registry is in this file.

usage: chart_registry_test.py CHART.tgz HELM     a chart of scripts/chart.sh, and the program helm
"""
import hashlib
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
CHART_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


class Registry(http.server.BaseHTTPRequestHandler):
    """The part of the OCI distribution specification that a client needs to push and pull: blobs, manifests and tags of one registry."""
    protocol_version = "HTTP/1.1"
    blobs, manifests, uploads = {}, {}, {}  # digest -> bytes; (name, tag or digest) -> (media type, bytes); upload -> bytes

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code, message):
        self.answer(status, json.dumps({"errors": [{"code": code, "message": message}]}).encode(), Content_Type="application/json")

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self):
        path = self.path.partition("?")[0]
        if path == "/v2/":
            return self.answer(200)
        if found := re.fullmatch(r"/v2/(.+)/blobs/(sha256:\w+)", path):
            if found[2] not in self.blobs:
                return self.refuse(404, "BLOB_UNKNOWN", found[2])
            return self.answer(200, self.blobs[found[2]], Content_Type="application/octet-stream", Docker_Content_Digest=found[2],
                               **({"Content_Length": str(len(self.blobs[found[2]]))} if self.command == "HEAD" else {}))
        if found := re.fullmatch(r"/v2/(.+)/manifests/(.+)", path):
            if (found[1], found[2]) not in self.manifests:
                return self.refuse(404, "MANIFEST_UNKNOWN", found[2])
            kind, body = self.manifests[found[1], found[2]]
            return self.answer(200, body, Content_Type=kind, Docker_Content_Digest=digest(body))
        if found := re.fullmatch(r"/v2/(.+)/tags/list", path):
            tags = [tag for name, tag in self.manifests if name == found[1] and not tag.startswith("sha256:")]
            return self.answer(200, json.dumps({"name": found[1], "tags": tags}).encode(), Content_Type="application/json")
        return self.refuse(404, "UNSUPPORTED", path)

    do_HEAD = do_GET

    def do_POST(self):
        self.body()
        found = re.fullmatch(r"/v2/(.+)/blobs/uploads/", self.path.partition("?")[0])
        if not found:
            return self.refuse(404, "UNSUPPORTED", self.path)
        upload = str(len(self.uploads))
        self.uploads[upload] = b""
        return self.answer(202, Location=f"/v2/{found[1]}/blobs/uploads/{upload}")

    def do_PATCH(self):
        upload = self.path.rpartition("/")[2]
        self.uploads[upload] += self.body()
        return self.answer(202, Location=self.path)

    def do_PUT(self):
        body = self.body()
        path, _, query = self.path.partition("?")
        if found := re.fullmatch(r"/v2/(.+)/manifests/(.+)", path):
            for name in (found[2], digest(body)):
                self.manifests[found[1], name] = (self.headers["Content-Type"], body)
            return self.answer(201, Location=path, Docker_Content_Digest=digest(body))
        upload = path.rpartition("/")[2]
        content = self.uploads.pop(upload) + body
        wanted = re.search(r"digest=(sha256)(?::|%3A)(\w+)", query)
        if not wanted or digest(content) != f"sha256:{wanted[2]}":
            return self.refuse(400, "DIGEST_INVALID", f"{len(content)} bytes have {digest(content)}, not {query}")
        self.blobs[digest(content)] = content
        return self.answer(201, Location=f"/v2/blobs/{digest(content)}", Docker_Content_Digest=digest(content))


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # Helm closes connections.
            super().handle_error(*address)


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def check(holds, what):
    if not holds:
        sys.exit(what)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    chart, program = (pathlib.Path(name).resolve() for name in sys.argv[1:])
    version = chart.name.removeprefix("sluice-").removesuffix(".tgz")
    server = Server(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    registry = f"oci://127.0.0.1:{server.server_port}/charts"
    with tempfile.TemporaryDirectory() as folder:
        # Helm keeps nothing in the home of the user who runs this test.
        environment = {"PATH": os.environ["PATH"], "HOME": folder}

        def helm(*command, fails=False):
            done = subprocess.run([program, *command], capture_output=True, text=True, env=environment)
            check((done.returncode != 0) == fails, f"helm {' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
            return done.stdout + done.stderr

        helm("push", chart, registry, "--plain-http")
        check(("charts/sluice", version) in Registry.manifests, f"the registry received {list(Registry.manifests)}, not charts/sluice:{version}")
        manifest = json.loads(Registry.manifests["charts/sluice", version][1])
        layers = [(layer["mediaType"], layer["digest"]) for layer in manifest["layers"]]
        check(layers == [(CHART_LAYER, digest(chart.read_bytes()))], f"the manifest lists {layers}, which is not the chart that was pushed")

        helm("pull", f"{registry}/sluice", "--version", version, "--plain-http", "--destination", folder)
        check(pathlib.Path(folder, chart.name).read_bytes() == chart.read_bytes(), "the pulled chart has other bytes than the pushed one")
        message = helm("pull", f"{registry}/sluice", "--version", "9.9.9", "--plain-http", "--destination", folder, fails=True)
        check("9.9.9" in message and "not found" in message, f"a version that the registry lacks has the error:\n{message}")

        # The chart from the registry equals the chart of the source, except for its version.
        values = ("--values", SOURCE / "helm/sluice/ci/minimal-values.yaml")
        rendered = helm("template", "demo", f"{registry}/sluice", "--version", version, "--plain-http", *values)
        rendered = "".join(line for line in rendered.splitlines(True) if not line.startswith(("Pulled:", "Digest:")))
        source = pathlib.Path(SOURCE, "helm/sluice/Chart.yaml").read_text()
        declared = re.search(r"^version: (.+)$", source, re.M)[1]
        check(f":{version}" in rendered, f"the rendered images do not have the tag {version}")
        check(rendered.replace(version, declared) == helm("template", "demo", SOURCE / "helm/sluice", *values).replace(version, declared),
              "the chart from the registry renders other objects than helm/sluice")
    server.shutdown()
    print(f"chart {version} was pushed to a registry, pulled with the same bytes and rendered from there")


if __name__ == "__main__":
    main()
