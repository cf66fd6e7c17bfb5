# SPDX-License-Identifier: Apache-2.0
"""Starts a real Prometheus."""
import subprocess

from processes import free_port


def start_prometheus(test, folder, configuration):
    """Starts Prometheus with the file `configuration`; its data and its log are in `folder`. It ends with `test`. Returns its URL."""
    address = f"127.0.0.1:{free_port()}"
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"],
            stdout=log, stderr=subprocess.STDOUT)

    def stop():
        process.kill()
        process.wait()
    test.addCleanup(stop)
    return f"http://{address}"
