# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium driven over its debugging pipe, which needs no library: JSON messages that end with a zero byte."""
import base64
import json
import os
import select
import shutil
import subprocess
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find_chromium():
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    """One page. `errors` collects the errors of its console."""

    def __init__(self, folder, limit):
        self.limit, self.errors, self.last, self.rest = limit, [], 0, b""
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        command = [find_chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                   f"--user-data-dir={folder}/chromium", "--remote-debugging-pipe"]

        def place_pipes():  # It reads from 3 and writes to 4.
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        with open(f"{folder}/chromium.log", "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=place_pipes, close_fds=False)
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        os.close(self.write_end)
        self.process.kill()
        self.process.wait()
        os.close(self.read_end)

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.limit
        while True:
            answer = self.read(end)
            if answer.get("id") != self.last:
                self.note(answer)
            elif "error" in answer:
                raise AssertionError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def read(self, end):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"Chromium sent nothing for {self.limit} s")
            got = os.read(self.read_end, 1 << 16)
            if not got:
                raise AssertionError("Chromium has ended")
            self.rest += got
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{parameters['entry']['text']} ({parameters['entry'].get('url', '')})")

    def open(self, url):
        self.call("Page.navigate", url=url)

    def value(self, expression):
        """Returns the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def look(self, width, height, scheme):
        """`scheme`: light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        """Captures the whole page, however long it is."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
