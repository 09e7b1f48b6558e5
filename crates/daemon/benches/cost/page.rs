//! The cost of one open web page: CPU time of the service while a page asks, less that without a page. The requests are
//! those of `src/web/page/page.js` with the headers of a browser, on one connection.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use qfabric_client::{Client, Contract, Nanos};
use qfabric_types::api::timeline::Timeline;
use qfabric_types::api::{ApplicationRequest, ApplicationScope};

use crate::{connect, itself, spent, stop, wait_for};

/// Applications under contract. [`WORKING`] of them do jobs, the others sleep.
pub(crate) const COUNTS: [usize; 3] = [2, 50, 200];
/// Rounds without and with the page, in turn, because the speed of the host changes with time.
pub(crate) const ROUNDS: usize = 5;
/// Length of each half of a round.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

const WORKING: usize = 2;
/// Between two readings of the page.
const PAUSE: Duration = Duration::from_millis(250);
const SLOW: [&str; 5] = ["/v1/channels", "/v1/hosts", "/v1/policies", "/v1/net", "/v1/energy"];
/// What Chromium sends with each request of the page.
const HEAD: &str = "connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"142\", \"HeadlessChrome\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\naccept: */*\r\nsec-fetch-site: same-origin\r\n\
    user-agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/142.0.0.0 Safari/537.36\r\n\
    sec-fetch-mode: cors\r\nsec-fetch-dest: empty\r\naccept-encoding: gzip, deflate, br, zstd\r\n\
    accept-language: en-US,en;q=0.9\r\n";

/// Prints the cost for each count of applications.
pub(crate) fn measure(counts: &[usize], rounds: usize, window: Duration) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut service = itself(&["serve", folder.path().to_str().ok_or("a folder with an odd name")?])?;
    let client = connect(&folder.path().join("qfabric.sock"))?;
    let (socket, working) = (client.socket().display().to_string(), WORKING.to_string());
    let whole = (window * 2 + Duration::from_secs(2)) * (rounds * counts.len()) as u32 + Duration::from_secs(30);
    let mut applications = itself(&["apply", &socket, &working, &whole.as_secs().to_string()])?;
    let mut sleepers = Vec::new();
    for &count in counts {
        while sleepers.len() + WORKING < count {
            sleepers.push(Sleeper::start(&client, sleepers.len())?);
        }
        wait_for(|| Ok(client.applications()?.len() == count))?;
        let mut shares = Vec::new();
        let mut traffic = Traffic::default();
        for _ in 0..rounds {
            let without = spent(&service, window, || ())?;
            let with = beside_page(&client, &service, window, &mut traffic)?;
            shares.push((with - without) * 100.0);
        }
        shares.sort_by(f64::total_cmp);
        println!(
            "a page, {count} applications: {:.3} % of one CPU ({:.3} to {:.3}, {rounds} rounds), {:.1} KB per request",
            shares[rounds / 2],
            shares[0],
            shares[rounds - 1],
            traffic.bytes as f64 / 1e3 / traffic.requests.max(1) as f64
        );
    }
    applications.kill()?;
    applications.wait()?;
    stop(&mut service)
}

/// Share of one CPU that the service uses while a page is open.
fn beside_page(
    client: &Client,
    service: &Child,
    window: Duration,
    traffic: &mut Traffic,
) -> Result<f64, Box<dyn Error>> {
    let url = client.web_page()?.url;
    let is_closed = AtomicBool::new(false);
    let (share, seen) = thread::scope(|scope| {
        let page = scope.spawn(|| look(&url, &is_closed).map_err(|error| error.to_string()));
        // The first view is over.
        thread::sleep(Duration::from_secs(1));
        let share = spent(service, window, || ());
        is_closed.store(true, Ordering::Relaxed);
        (share, page.join())
    });
    let seen = seen.map_err(|_| "the page panicked")??;
    traffic.requests += seen.requests;
    traffic.bytes += seen.bytes;
    share
}

#[derive(Default)]
struct Traffic {
    requests: usize,
    /// Of the answers, with their heads.
    bytes: usize,
}

/// Asks as the page does, until it is closed.
fn look(url: &str, is_closed: &AtomicBool) -> Result<Traffic, Box<dyn Error>> {
    let mut connection = Connection::open(url)?;
    // As JavaScript's largest exact number: only the end of the timeline.
    let mut next = (1_u64 << 53) - 1;
    for turn in 0.. {
        if is_closed.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        connection.get("/v1/status")?;
        if turn % 2 == 0 {
            let timeline: Timeline = serde_json::from_slice(&connection.get(&format!("/v1/timeline?from={next}"))?)?;
            next = timeline.next;
        }
        if turn % 4 == 1 {
            connection.get(SLOW[turn / 4 % SLOW.len()])?;
        }
        thread::sleep(PAUSE.saturating_sub(begun.elapsed()));
    }
    Ok(connection.traffic)
}

/// A connection of a browser to the page.
struct Connection {
    stream: BufReader<TcpStream>,
    head: String,
    /// Of the last answer of each path.
    tags: BTreeMap<String, String>,
    traffic: Traffic,
}

impl Connection {
    fn open(url: &str) -> Result<Connection, Box<dyn Error>> {
        let parts = url.strip_prefix("http://").and_then(|rest| rest.split_once("/#token="));
        let (address, token) = parts.ok_or("the page has another address")?;
        let stream = BufReader::new(TcpStream::connect(address)?);
        let head = format!("host: {address}\r\nauthorization: Bearer {token}\r\nreferer: http://{address}/\r\n{HEAD}");
        Ok(Connection { stream, head, tags: BTreeMap::new(), traffic: Traffic::default() })
    }

    /// The body of the answer, which is empty if nothing has changed since the last one.
    fn get(&mut self, path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        let tag = self.tags.get(path).map(|tag| format!("if-none-match: {tag}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\n{}{tag}\r\n", self.head);
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            let read = self.stream.read_line(&mut line)?;
            self.traffic.bytes += read;
            let line = line.trim_end();
            match line.split_once(": ") {
                Some(("content-length", value)) => length = value.parse()?,
                // The page asks for new records by their number.
                Some(("etag", value)) if !path.contains('?') => {
                    drop(self.tags.insert(path.to_owned(), value.to_owned()))
                }
                None if read == 0 => return Err("the service closed the connection".into()),
                None if line.is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        self.traffic.requests += 1;
        self.traffic.bytes += length;
        Ok(body)
    }
}

/// A program under contract that does nothing.
struct Sleeper(Child);

impl Sleeper {
    fn start(client: &Client, number: usize) -> Result<Sleeper, Box<dyn Error>> {
        let program = Sleeper(Command::new("sleep").arg("100000").spawn()?);
        let contract = Contract::new(&format!("sleeper-{number}"), Nanos::from_millis(40));
        let pid = program.0.id() as i32;
        client.admit(&ApplicationRequest { pid, covers: ApplicationScope::Program, contract })?;
        Ok(program)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // Both fail only if the program has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
