"""A headless Chromium, driven through chromedriver's HTTP interface (W3C WebDriver)."""
import base64
import json
import shutil
import subprocess
import time
import urllib.request

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
KEYS = {"right": "\ue014", "left": "\ue012", "home": "\ue011", "end": "\ue010", "tab": "\ue004", "enter": "\ue007"}


class Browser:
    """`with Browser() as b`. Errors of the page's own are kept in `window.failures`."""

    def __enter__(self):
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.port = int(line.rstrip(".\n").rsplit(" ", 1)[1])
                break
        options = {"binary": CHROMIUM, "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1040,1000"]}
        self.session = ""
        value = self.post("", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}, whole="/session")
        self.session = value["sessionId"]
        return self

    def __exit__(self, *_):
        try:
            self.send("DELETE", f"/session/{self.session}")
        finally:
            self.driver.terminate()
            self.driver.wait(20)

    def send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)["value"]

    def post(self, path, body, whole=None):
        return self.send("POST", whole or f"/session/{self.session}{path}", body)

    def open(self, url):
        self.post("/url", {"url": "about:blank"})
        self.post("/url", {"url": url})

    def js(self, script, *arguments):
        return self.post("/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command, **parameters):
        return self.post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def until(self, script, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.js(script):
                return
            time.sleep(0.05)
        raise AssertionError(f"not after {seconds} s: {script}")

    def focused(self):
        return self.js("return document.activeElement.id || document.activeElement.textContent.trim()")

    def press(self, *keys):
        """Keys to whatever has the focus."""
        steps = [{"type": kind, "value": KEYS.get(k, k)} for k in keys for kind in ("keyDown", "keyUp")]
        self.post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def picture(self, path, selector, padding=8):
        """A PNG of one element and what is around it."""
        box = self.js("const e = document.querySelector(arguments[0]); const r = e.getBoundingClientRect();"
                      "return [r.x + scrollX, r.y + scrollY, r.width, r.height]", selector)
        clip = {"x": box[0] - padding, "y": box[1] - padding, "width": box[2] + 2 * padding, "height": box[3] + 2 * padding, "scale": 1}
        shot = self.devtools("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))
