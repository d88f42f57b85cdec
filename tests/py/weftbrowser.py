"""Debian's Chromium, driven over its DevTools pipe: pages are opened, clicked and asked, and all that goes wrong is noted.

With Browser(folder) as browser: page = browser.open(url); page.value("expression") is JSON.

Units: seconds.
Source: Chrome DevTools Protocol (Target, Page, Runtime, Log, Network, Input); `--remote-debugging-pipe` reads requests at
descriptor 3 and writes answers to 4, each ended by a zero byte.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

TIMEOUT_S = 60
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
]


def missing():
    """Why no browser can be had here, or None."""
    return None if shutil.which("chromium") else "chromium is not installed (tools/setup.sh test)"


class Page:
    """A page that is open."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.problems, self.requests = [], []

    def call(self, method, **params):
        """Calls a method of the protocol for this page."""
        return self.browser.call(method, self.session, **params)

    def value(self, expression):
        """The value of an expression, as JSON; a promise is waited for."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, (expression, done)
        return done["result"].get("value")

    def until(self, what, expression, good=bool):
        """Waits until the value of an expression is good, and returns it."""
        end = time.monotonic() + TIMEOUT_S
        while not good(value := self.value(expression)):
            assert time.monotonic() < end, f"{what}: {value!r}; problems {self.problems}"
            time.sleep(0.05)
        return value

    def click(self, selector):
        """Clicks in the middle of the element, as a user does."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView();"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **at)

    def screenshot(self, path, width, height):
        """Writes what is seen as PNG."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def heard(self, method, params):
        """Notes an event: errors, and what is loaded."""
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])


class Browser:
    """A browser with a profile of its own; a context that ends it."""

    def __init__(self, folder):
        to_child, self.out = os.pipe()
        self.input, from_child = os.pipe()
        self.log = open(os.path.join(folder, "chromium.log"), "w", encoding="utf-8")  # pylint: disable=consider-using-with
        # The child has both ends at 3 and 4, whichever numbers they have here.
        wire = f"exec 3<&{to_child} 4>&{from_child}; exec chromium \"$@\""
        command = ["bash", "-c", wire, "bash", *FLAGS, f"--user-data-dir={folder}/profile", "about:blank"]
        self.process = subprocess.Popen(
            command, pass_fds=(to_child, from_child), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        os.close(to_child)
        os.close(from_child)
        self.number, self.rest, self.pages = 0, b"", {}

    def message(self, end):
        """The next message of the browser."""
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            assert left > 0 and self.process.poll() is None, "chromium does not answer"
            if select.select([self.input], [], [], min(left, 1))[0]:
                part = os.read(self.input, 1 << 16)
                assert part, "chromium has ended"
                self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        """Calls a method of the protocol; events that come before its answer go to their pages."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if session:
            request["sessionId"] = session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + TIMEOUT_S
        while True:
            message = self.message(end)
            if message.get("id") == self.number:
                assert "error" not in message, (method, message)
                return message["result"]
            page = self.pages.get(message.get("sessionId"))
            if page and "method" in message:
                page.heard(message["method"], message["params"])

    def open(self, url):
        """Opens a page; what it loads and what goes wrong is noted from the first byte on."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Page.navigate", url=url)
        loaded = f"document.readyState === 'complete' && location.href === {json.dumps(url)}"
        page.until("the page is loaded", loaded)
        return page

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(timeout=20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        finally:
            os.close(self.out)
            os.close(self.input)
            self.log.close()
