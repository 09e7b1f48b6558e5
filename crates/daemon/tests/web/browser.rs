//! A browser without a display, driven by the DevTools protocol over two pipes. A message is JSON with a zero byte
//! after it.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::*;

/// Programs that speak the protocol. The first one is the Debian package that `make setup` installs.
const PROGRAMS: [&str; 4] = ["chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"];
const OPTIONS: &str = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
                       --window-size=1280,900 --remote-debugging-pipe";
/// Known to every expression: what a selector finds, as text and as elements.
const HELPERS: &str = "const all = (s) => [...document.querySelectorAll(s)]; \
                       const one = (s) => document.querySelector(s); const text = (s) => one(s)?.innerText ?? '';";

pub(super) struct Browser {
    to: ChildStdin,
    messages: Receiver<Value>,
    asked: u64,
    /// The tab, null before the first one.
    target: Value,
    /// The connection to the tab, empty before the first one.
    session: String,
    /// What no page may do: uncaught errors, violations of the policy for contents, dialogs.
    faults: Vec<String>,
    _process: Process,
    _profile: TempDir,
}

impl Browser {
    /// None: no browser is installed, and the reason was printed.
    pub(super) fn start() -> Option<Browser> {
        let is_there = |program: &&str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
        let Some(program) = PROGRAMS.into_iter().find(is_there) else {
            qfabric_linux::testing::skip("chromium-headless-shell is not installed, nor another Chromium");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        // The browser reads descriptor 3 and writes 4.
        let script = format!("exec {program} {OPTIONS} --user-data-dir=\"$0\" 3<&0 4>&1 </dev/null >/dev/null 2>&1");
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg(profile.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let (to, from) = (process.0.stdin.take().unwrap(), process.0.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                // Fails if the test has ended.
                let _ = sender.send(serde_json::from_slice(&message).unwrap());
            }
        });
        let (target, session, faults) = (Value::Null, String::new(), Vec::new());
        Some(Browser { to, messages, asked: 0, target, session, faults, _process: process, _profile: profile })
    }

    /// Shows the address in a new tab, in which the next calls take place, and closes the former one.
    pub(super) fn open(&mut self, url: &str) {
        self.session.clear();
        let target = self.ask("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = self.ask("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        let former = std::mem::replace(&mut self.target, target);
        if !former.is_null() {
            self.ask("Target.closeTarget", json!({"targetId": former}));
        }
        attached["sessionId"].as_str().unwrap().clone_into(&mut self.session);
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            self.ask(domain, json!({}));
        }
        self.ask("Page.navigate", json!({"url": url}));
    }

    /// Loads the page of the tab again and waits until the old one is gone.
    pub(super) fn reload(&mut self) {
        self.value("window.isOld = true");
        self.ask("Page.reload", json!({}));
        self.until("window.isOld === undefined && document.readyState === 'complete'");
    }

    /// The result of a call of the protocol; null if the page was left meanwhile.
    pub(super) fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut message = self.messages.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == self.asked {
                assert!(message["error"].is_null() || method == "Runtime.evaluate", "{method}: {message}");
                return message["result"].take();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let entry = &event["params"]["entry"];
        let is_fault = match event["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Page.javascriptDialogOpening") => true,
            Some("Log.entryAdded") => entry["level"] == "error" && entry["source"] != "network",
            _ => false,
        };
        if is_fault {
            self.faults.push(event["params"].to_string());
        }
    }

    /// The value of an expression in the page; null while a page is loaded.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let text = format!("(() => {{ {HELPERS} return ({expression}); }})()");
        let parameters = json!({"expression": text, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.ask("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer:#}");
        assert!(self.faults.is_empty(), "{:#?}", self.faults);
        answer["result"]["value"].take()
    }

    pub(super) fn text(&mut self, selector: &str) -> String {
        self.value(&format!("text({})", json!(selector))).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true.
    pub(super) fn until(&mut self, condition: &str) {
        let until = Instant::now() + PATIENCE;
        while self.value(condition) != true {
            assert!(Instant::now() < until, "not within {PATIENCE:?}: {condition}\n{}", self.text("body"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the element contains the text.
    pub(super) fn shows(&mut self, selector: &str, part: &str) {
        self.until(&format!("text({}).includes({})", json!(selector), json!(part)));
    }

    /// Waits until this number of charts has been drawn on.
    pub(super) fn draws(&mut self, charts: usize) {
        self.until(&format!(
            "all('canvas').length === {charts} && all('canvas').every((chart) => chart.getContext('2d') \
             .getImageData(0, 0, chart.width, chart.height).data.some((part) => part > 0))"
        ));
    }

    /// Presses the mouse where the element is, as soon as it takes clicks.
    pub(super) fn click(&mut self, selector: &str) {
        let element = format!("one({})", json!(selector));
        self.until(&format!("{element} !== null && !{element}.disabled"));
        let place = self.value(&format!(
            "{element}.scrollIntoView({{block: 'center'}}), (({{x, y, width, height}}) => \
             [x + width / 2, y + height / 2])({element}.getBoundingClientRect())"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let at = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", at);
        }
    }

    /// Replaces the text of a field.
    pub(super) fn write(&mut self, selector: &str, text: &str) {
        self.click(selector);
        self.value(&format!("one({}).select()", json!(selector)));
        self.ask("Input.insertText", json!({"text": text}));
    }

    /// Presses a key: `Tab`, or `Enter`, which also makes a line end.
    pub(super) fn press(&mut self, key: &str) {
        let (code, text) = if key == "Tab" { (9, "") } else { (13, "\r") };
        for kind in ["keyDown", "keyUp"] {
            let shown = if kind == "keyDown" { text } else { "" };
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": shown});
            self.ask("Input.dispatchKeyEvent", event);
        }
    }
}
