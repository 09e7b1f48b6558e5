//! The page in a browser: every view, live values, a daemon that restarts, other users, hostile names, many
//! applications.

use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use qfabric_client::channel::{Channel, Channels, Sink, SinkOptions, Source, SourceOptions, Spec};
use qfabric_client::{Client, Session};
use qfabric_linux::testing::{live_lock, may_reserve, skip};
use serde_json::json;

use super::browser::Browser;
use super::*;

/// A channel of this host with a source and a sink.
pub(super) struct Talk {
    _members: (Source, Sink, Channel),
    _channels: Channels,
}

pub(super) fn talk(client: &Client, channel: &str) -> Talk {
    let channels = Channels::connect(client).unwrap();
    let opened = channels.create(channel, &Spec::of("struct frame { int number; int size; };")).unwrap();
    let camera = SourceOptions { application: Some("camera".to_owned()), ..SourceOptions::default() };
    let wall = SinkOptions { application: Some("wall".to_owned()), ..SinkOptions::default() };
    let members = (opened.source_subscribe(&camera).unwrap(), opened.sink(&wall).unwrap());
    Talk { _members: (members.0, members.1, opened), _channels: channels }
}

/// Does jobs under the contract `film` while `steps` run. Every fourth job takes longer than its period.
fn beside_jobs(client: &Client, steps: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = Session::start(client, contract("film", 40)).unwrap();
            while !ended.load(Ordering::Relaxed) {
                work(&mut session, 3, 1);
                work(&mut session, 1, 50);
            }
        });
        let ends = Ends(&ended);
        steps();
        drop(ends);
    });
}

/// Ends the jobs also if a step fails.
struct Ends<'f>(&'f AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Browser {
    /// Shows the page of a daemon and waits for its first values.
    pub(super) fn show(&mut self, page: &Page) {
        self.open(&format!("http://{}/#token={}", page.address, page.token));
        self.shows("#state", "Live, four readings in a second");
    }

    /// Shows the charts of an application.
    fn select(&mut self, name: &str) {
        let button = format!("all('#applications button').find((button) => button.innerText === {})", json!(name));
        self.until(&format!("{button} !== undefined && ({button}.id = 'chosen') !== ''"));
        self.click("#chosen");
        self.until("one('#chosen').ariaPressed === 'true' && !one('#detail').hidden");
        self.value("one('#chosen').id = ''");
    }
}

#[test]
fn every_view_shows_what_the_daemon_knows() {
    let Some(mut browser) = Browser::start().filter(|_| may_reserve()) else { return };
    let _lock = live_lock();
    let (service, client, page) = opened_with(with_channels());
    let _talk = talk(&client, "film");
    assert_eq!(call(service.socket(), "POST", "/v1/policies", STARTED).0, 201);
    beside_jobs(&client, || {
        browser.show(&page);
        // Those of an application are made when it is chosen.
        browser.draws(1);
        browser.select("film");
        for (view, part) in [
            ("#host", "alpha"),
            ("#headline", "Mechanism deadline"),
            ("#applications", "Applications under contract (1)"),
            ("#h-detail", ": film"),
            ("#detail-text", "class C, period 40 ms"),
            ("#errors-text", "with a positive error"),
            ("#promises", "Memory"),
            ("#links", "Interfaces under packet scheduling: none"),
            ("#hosts", "alpha (this host)"),
            ("#channels", "film\talpha\talpha\t1\t1"),
            ("#members", "film\talpha\twall"),
            ("#members", "film\talpha\tcamera"),
            ("#policies", "code.film"),
            ("#policies", "app.rate_milli 12500 for alpha"),
            ("#energy-text", "Power model "),
            ("#events", "its contract came into force"),
        ] {
            browser.shows(view, part);
        }
        browser.until("/[1-9][0-9]* of [0-9]+ jobs missed/.test(one('#chart-misses').ariaLabel)");
        browser.draws(4);
        assert!(browser.text("#channels-off").is_empty());
    });
}

#[test]
fn the_page_follows_the_colours_of_the_system() {
    let Some(mut browser) = Browser::start() else { return };
    let _lock = live_lock();
    let (_service, _client, page) = opened();
    browser.show(&page);
    let mut background = |scheme: &str| {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        browser.ask("Emulation.setEmulatedMedia", json!({"features": features}));
        browser.value("getComputedStyle(document.body).backgroundColor")
    };
    assert_ne!(background("light"), background("dark"));
}

/// Notes the kinds of changes in the table of applications.
const OBSERVE: &str = "window.changes = [], \
                       new MutationObserver((all) => window.changes.push(...all.map((one) => one.type))) \
                       .observe(one('#applications tbody'), {childList: true, characterData: true, subtree: true})";

#[test]
fn values_change_while_the_page_is_open_and_the_keyboard_reaches_them() {
    let Some(mut browser) = Browser::start().filter(|_| may_reserve()) else { return };
    let _lock = live_lock();
    let (_service, client, page) = opened();
    browser.show(&page);
    browser.shows("#applications", "none; start one with qfabric run -- PROGRAM");
    beside_jobs(&client, || {
        browser.until("all('#applications tbody tr').length === 1");
        browser.value("one('.skip').focus()");
        let on_button = |browser: &mut Browser| {
            browser.press("Tab");
            browser.value("document.activeElement.matches('#applications button')") == true
        };
        assert!((0..9).any(|_| on_button(&mut browser)), "the Tab key does not reach the application");
        browser.press("Enter");
        browser.until("!one('#detail').hidden");
        let jobs = "Number(one('#applications tbody tr').cells[9].innerText)";
        browser.value(OBSERVE);
        let before = browser.value(jobs);
        browser.until(&format!("{jobs} > {before}"));
        let kinds = browser.value("[...new Set(window.changes)].join()");
        assert_eq!(kinds, "characterData", "rows keep their cells and text nodes");
        assert_eq!(browser.value("document.activeElement.matches('#applications button')"), true, "the focus stays");
    });
    browser.shows("#detail-text", "This application has left.");
    browser.shows("#events", "its contract ended");
    browser.until("all('#applications tbody tr').length === 0");
}

/// Run by the next test: a service whose page has a fixed address.
#[test]
#[ignore = "a role"]
fn a_daemon_with_a_page() {
    let mut config = quiet();
    config.web.listen = Some(given("LISTEN").parse().unwrap());
    qfabric_daemon::run(config.in_directory(given("FOLDER"))).unwrap();
}

fn daemon_at(listen: &str, folder: &Path) -> (Process, Page) {
    let variables = [("LISTEN", listen), ("FOLDER", folder.to_str().unwrap())];
    let process = role("web::views::a_daemon_with_a_page", None, &variables);
    let page = Page::at(&served(folder).web_page().unwrap().url);
    assert_eq!(page.address, listen);
    (process, page)
}

#[test]
fn a_page_says_what_to_do_when_its_daemon_is_killed_and_started_again() {
    let Some(mut browser) = Browser::start() else { return };
    let _lock = live_lock();
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (killed, page) = daemon_at(&free, folder.path());
    browser.show(&page);
    drop(killed);
    browser.shows("#state", "The daemon does not answer; the page tries again");
    let (_again, page) = daemon_at(&free, folder.path());
    // A token is known until the daemon ends.
    browser.shows("#state", "qfabric web");
    assert_eq!(browser.value("one('#state').classList.contains('trouble')"), true);
    browser.show(&page);
}

#[test]
fn a_page_of_another_version_says_so_and_loads_the_new_one() {
    let Some(mut browser) = Browser::start() else { return };
    let _lock = live_lock();
    let (_service, _client, page) = opened();
    browser.show(&page);
    browser.value(
        "(window.old = true, window.get = Headers.prototype.get, Headers.prototype.get = \
         function (name) { return name === 'qfabric-version' ? '9.9.9' : window.get.call(this, name); }, \
         window.wait = setTimeout, window.setTimeout = (call, ms) => \
         ms === 1500 ? (window.load = call, 0) : wait(call, ms), true)",
    );
    browser.shows("#banner", "The daemon has version 9.9.9 now, this page has version");
    // The page waits for the test before it loads the new one, or a slow test would miss what it says.
    browser.value("(load(), true)");
    browser.until("window.old === undefined && document.readyState === 'complete'");
    browser.shows("#state", "Live, four readings in a second");
}

#[test]
fn a_user_sees_no_jobs_of_others_and_cannot_start_policies_on_their_channels() {
    let Some(mut browser) = Browser::start().filter(|_| may_reserve()) else { return };
    if !rustix::process::geteuid().is_root() {
        return skip("only root can be several users");
    }
    let _lock = live_lock();
    let (service, client, page) = opened_with(with_channels());
    let _talk = talk(&client, "film");
    beside_jobs(&client, || {
        browser.show(&page);
        browser.select("film");
        browser.shows("#errors-text", " jobs in the last");
        browser.show(&page_of_nobody(&service));
        browser.select("film");
        browser.shows("#errors-text", "No jobs of your own applications");
        browser.shows("#events", "none yet");
    });
    if !cfg!(laboratory) {
        return;
    }
    browser.click("a[href='/laboratory.html']");
    browser.shows("#verdict", "The compiler accepts the text");
    browser.click("#start");
    browser.shows("#refused", "is not open here under a connection of this user");
    browser.until("!one('#start').disabled && one('#back').disabled");
    assert_eq!(call(service.socket(), "GET", "/v1/policies", "").1, "[]");
}

#[test]
fn hostile_names_are_text_in_every_view() {
    let Some(mut browser) = Browser::start() else { return };
    let _lock = live_lock();
    let (_service, client, page) = opened();
    browser.open(&format!("http://{}/", page.address));
    browser.shows("#state", "qfabric web --print-url");
    let _program = named(&client, HOSTILE);
    browser.show(&page);
    assert_eq!(browser.value("location.href"), json!(format!("http://{}/", page.address)), "the token has gone");
    browser.select(HOSTILE);
    browser.shows("#h-detail", HOSTILE);
    browser.shows("#events", HOSTILE);
    let made = browser.value("[document.title, all('img').length, all('body script').length]");
    assert_eq!(made, json!(["Q-Fabric", 0, 0]));
}

/// What the first view of a page loaded: its files, and each answer up to that of the last of the slower paths. A file
/// that the browser kept counts as if it had been sent.
const FIRST_VIEW: &str = "(({ startTime: end }, entries) => { \
    const first = [...performance.getEntriesByType('navigation'), ...entries.filter((one) => one.startTime <= end)]; \
    return { bytes: first.reduce((sum, one) => sum + Math.max(one.transferSize, one.encodedBodySize), 0), \
        painted: performance.getEntriesByName('first-contentful-paint')[0].startTime, \
        values: first.find((one) => one.name.endsWith('/v1/status')).responseEnd, \
        histories: first.filter((one) => one.name.includes('before=')).length }; \
    })(performance.getEntriesByType('resource').find((one) => one.name.endsWith('/v1/energy')), \
       performance.getEntriesByType('resource'))";

/// Shows the page in new tabs and prints what each first view cost. The first one also has the start of the browser.
fn first_views(browser: &mut Browser, page: &Page, applications: usize) -> Vec<serde_json::Value> {
    let mut seen = Vec::new();
    for _ in 0..5 {
        browser.show(page);
        browser.until(
            "performance.getEntriesByName('first-contentful-paint').length === 1 && \
             performance.getEntriesByType('resource').some((one) => one.name.endsWith('/v1/energy'))",
        );
        seen.push(browser.value(FIRST_VIEW));
    }
    let all = |what: &str| seen.iter().map(|view| format!("{:.0}", view[what].as_f64().unwrap())).collect::<Vec<_>>();
    println!(
        "first view, {applications} applications: {} bytes; painted after {} ms, the state is there after {} ms",
        all("bytes").join(", "),
        all("painted").join(", "),
        all("values").join(", ")
    );
    seen
}

#[test]
fn the_first_view_is_small_and_the_history_follows_it() {
    const MOST: u64 = 300_000;
    let Some(mut browser) = Browser::start() else { return };
    let _lock = live_lock();
    let (_service, client, page) = opened();
    let _program = named(&client, "film");
    for view in first_views(&mut browser, &page, 1) {
        assert!(view["bytes"].as_u64().is_some_and(|bytes| (50_000..=MOST).contains(&bytes)), "{view}");
        assert_eq!(view["histories"], 0, "a busy daemon has megabytes of them");
    }
    browser.until("performance.getEntriesByType('resource').some((one) => one.name.includes('before='))");
    browser.shows("#events", "its contract came into force");
}

/// A table of 200 rows far below the window, whose values are `beat`.
const FAR_TABLE: &str = "(import('/tables.js').then(({ Table }) => { \
    const [far, place] = [document.createElement('div'), document.createElement('div')]; \
    far.style.height = '20000px'; \
    document.body.append(far, place); \
    const table = new Table(place, 'Far', [['row', ''], ['beat', 'number']], 'none', 16); \
    window.beat = 0; \
    window.next = () => { window.beat += 1; table.update(Array.from({ length: 200 }, (_, key) => \
        ({ key, cells: [`row ${key}`, `${window.beat}`] }))); }; \
    window.beats = () => [...place.querySelectorAll('td')].map((cell) => Number(cell.innerText)); \
    window.last = () => place.querySelector('tbody tr:last-child'); \
    }), true)";

#[test]
fn rows_out_of_sight_are_filled_in_turn_and_at_once_when_they_come_into_sight() {
    let Some(mut browser) = Browser::start() else { return };
    let _lock = live_lock();
    let (_service, _client, page) = opened();
    browser.open(&format!("http://{}/", page.address));
    browser.shows("#state", "qfabric web --print-url");
    browser.value(FAR_TABLE);
    browser.until("window.next !== undefined");
    assert_eq!(browser.value("(next(), Math.min(...beats()))"), 1, "the first values are shown in all rows");
    // As soon as the browser has said which rows are in sight.
    browser.until("(next(), beats().filter((beat) => beat === window.beat).length === 16)");
    let age = browser.value("(Array.from({ length: 13 }, next), window.beat - Math.min(...beats()))");
    assert!(age.as_u64().is_some_and(|age| age <= 13), "each row has its turn: {age}");
    browser.value("last().scrollIntoView()");
    browser.until("beats()[199] === window.beat");
    assert_eq!(browser.value("(next(), beats()[199] === window.beat)"), true, "it is in sight");
}

/// Lets the page believe that each value changes in each reading, and that the realm has 50 hosts. No answer is 304, or
/// values that do not change would have no body.
const MANY_HOSTS: &str = "(window.beat = 0, window.asked = window.fetch, window.fetch = async (path, options) => { \
    const { 'If-None-Match': _, ...headers } = options.headers; \
    const answer = await asked(path, { ...options, headers }); \
    const as = (body) => new Response(JSON.stringify(body), { headers: answer.headers }); \
    const hosts = Array.from({ length: 50 }, (_, index) => `host-${index}`); \
    if (path === '/v1/hosts') return as(hosts.map((host) => ({ host, channels: 2, registrations: window.beat }))); \
    if (path === '/v1/channels') return as(hosts.map((host) => ({ plane: 0, name: `of-${host}`, creator: host, \
        hosts: [{ host, sources: [{ number: 1, counts: { submitted: window.beat } }], sinks: [{ number: 2 }] }] }))); \
    if (path !== '/v1/status') return answer; \
    const status = await answer.json(); \
    window.beat += 1; \
    status.applications.forEach((app) => { app.used = app.wanted = (app.id + window.beat) % 90 / 100; \
        app.quality.jobs += 10 * window.beat; }); \
    return as(status); }, true)";
/// Frames of five seconds: how many in a second, how many took longer than two, and the longest, in milliseconds.
const FRAMES: &str = "new Promise((done) => { const times = []; const next = (now) => { times.push(now); \
    if (now - times[0] < 5000) return requestAnimationFrame(next); \
    const taken = times.slice(1).map((time, index) => time - times[index]); \
    done([taken.length / (now - times[0]) * 1000, taken.filter((ms) => ms > 25).length, Math.max(...taken)]); }; \
    requestAnimationFrame(next); })";

#[test]
fn two_hundred_applications_and_fifty_hosts_are_shown_and_one_application_can_be_chosen() {
    const MANY: usize = 200;
    let Some(mut browser) = Browser::start() else { return };
    let _lock = live_lock();
    let mut config = quiet();
    config.limits.max_applications_per_user = MANY;
    let (_service, client, page) = opened_with(config);
    let programs: Vec<_> = (0..MANY).map(|number| named(&client, &format!("film-{number}"))).collect();
    first_views(&mut browser, &page, MANY);
    browser.shows("#applications caption", "Applications under contract (200)");
    assert_eq!(browser.value("all('#applications tbody tr').length"), MANY);
    browser.value(MANY_HOSTS);
    browser.shows("#hosts caption", "Hosts of the realm (50)");
    browser.shows("#members caption", "Members (100)");
    browser.select("film-199");
    browser.shows("#h-detail", ": film-199");
    browser.select("film-3");
    browser.shows("#h-detail", ": film-3");
    println!("{MANY} applications, frames per second, longer than 25 ms, longest in ms: {}", browser.value(FRAMES));
    client.release(client.status().unwrap().applications[0].id).unwrap();
    browser.shows("#applications caption", "Applications under contract (199)");
    drop(programs);
}
