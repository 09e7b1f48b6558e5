//! Measures the cost of the service: idle, with applications that mark 25 jobs a second, and with an open web page
//! (only that with `cargo bench -p qfabric-daemon --bench cost -- page`). Prints figures and asserts nothing, because
//! machines differ.
//!
//! The service and the applications are separate processes. CPU time is the process clock of the service, so it is
//! exact.

mod page;

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use qfabric_client::{Client, Contract, Foresight, Nanos, Session};
use qfabric_daemon::Config;
use qfabric_linux::clock::process_cpu;
use qfabric_types::JobSource;

const APPLICATIONS: usize = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", folder] => Ok(qfabric_daemon::run(config(folder))?),
        ["apply", socket, count, seconds] => apply(socket, count.parse()?, seconds.parse()?),
        // `make bench ARGS=--short` gives this option to every bench: show only that it works.
        ref given if given.contains(&"--max-time") => {
            measure(APPLICATIONS, 2)?;
            page::measure(&[2], 1, Duration::from_secs(1))
        }
        ref given if given.contains(&"page") => page::measure(&page::COUNTS, page::ROUNDS, page::WINDOW),
        _ => {
            measure(APPLICATIONS, 20)?;
            page::measure(&page::COUNTS, page::ROUNDS, page::WINDOW)
        }
    }
}

fn config(folder: &str) -> Config {
    let mut config = Config::default().in_directory(folder);
    config.log.filter = "warn".to_owned();
    config.limits.max_applications_per_user = page::COUNTS.into_iter().max().unwrap_or_default();
    config
}

fn measure(count: usize, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let mut service = itself(&["serve", folder.path().to_str().ok_or("a folder with an odd name")?])?;
    let client = connect(&folder.path().join("qfabric.sock"))?;
    let window = Duration::from_secs(seconds);

    let idle = spent(&service, window, || ())?;
    println!("idle:                   {:.3} % of one CPU, {:.1} MB resident", idle * 100.0, resident_mb(&service)?);

    let (socket, count_text, seconds_text) = (client.socket().display(), count.to_string(), (seconds + 4).to_string());
    let mut applications = itself(&["apply", &socket.to_string(), &count_text, &seconds_text])?;
    wait_for(|| Ok(client.applications()?.len() == count))?;
    std::thread::sleep(Duration::from_secs(1));
    let (before, mut after) = (counters(&client)?, None);
    let busy = spent(&service, window, || after = counters(&client).ok())?;
    let after = after.ok_or("no counters")?;
    let per_second = |i: usize| (after[i] - before[i]) / seconds as f64;
    println!(
        "{count} applications, 25 Hz: {:.3} % of one CPU, {:.1} MB resident",
        busy * 100.0,
        resident_mb(&service)?
    );
    println!(
        "  control thread:       {:.1} wake-ups/s ({:.1} called for, {:.1} for the host, {:.1} to look), {:.1} jobs/s, {:.1} settings/s, {:.2} µs handling each",
        per_second(0),
        per_second(4),
        per_second(5),
        per_second(6),
        per_second(1),
        per_second(2),
        (after[3] - before[3]) / (after[0] - before[0]) * 1e6
    );
    println!("  per job:              {:.2} µs of CPU", busy * 1e6 / per_second(1).max(1e-9));
    applications.wait()?;
    stop(&mut service)
}

/// Share of one CPU that a process uses during the window; `at_end` runs right after.
fn spent(process: &Child, window: Duration, at_end: impl FnOnce()) -> Result<f64, Box<dyn std::error::Error>> {
    let (start, before) = (Instant::now(), process_cpu(process.id() as i32)?);
    std::thread::sleep(window);
    let used = process_cpu(process.id() as i32)? - before;
    let share = used.as_secs_f64() / start.elapsed().as_secs_f64();
    at_end();
    Ok(share)
}

fn resident_mb(process: &Child) -> Result<f64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// Wake-ups, records, settings, seconds of handling, wake-ups by applications, ticks, and due looks, as the service
/// counts.
fn counters(client: &Client) -> Result<[f64; 7], Box<dyn std::error::Error>> {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(client.socket())?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let sum = |name: &str| -> f64 {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let names = [
        "control_wakeups_total",
        "ring_records_total",
        "settings_applied_total",
        "control_handling_seconds_sum",
        "ring_wakeups_total",
        "control_ticks_total",
        "control_looks_due_total",
    ];
    Ok(names.map(|name| sum(&format!("qfabric_{name}"))))
}

/// Runs threads that each hold a session and do very short jobs, 25 times a second.
fn apply(socket: &str, count: usize, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let threads: Vec<_> = (0..count)
        .map(|i| (i, socket.to_owned()))
        .map(|(i, socket)| std::thread::spawn(move || one(i, &socket, until)))
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "an application failed")??;
    }
    Ok(())
}

fn one(i: usize, socket: &str, until: Instant) -> Result<(), String> {
    // Spread over the period, as independent applications are.
    std::thread::sleep(Duration::from_micros(40_000 / 50 * i as u64 % 40_000));
    let mut contract = Contract::new(&format!("app-{i}"), Nanos::from_millis(40));
    (contract.jobs, contract.max_bandwidth) = (JobSource::Marked, qfabric_types::Share::from_ppm(100_000));
    let client = Client::connect_to(Path::new(socket)).map_err(|error| error.to_string())?;
    let mut session = Session::start(&client, contract).map_err(|error| error.to_string())?;
    while Instant::now() < until {
        let work = Instant::now();
        while work.elapsed() < Duration::from_micros(300 + 20 * (i as u64 % 10)) {}
        session.end_cycle(Foresight::Nothing);
        session.wait_for_next_job();
    }
    Ok(())
}

fn itself(arguments: &[&str]) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args(arguments).spawn()
}

fn connect(socket: &Path) -> Result<Client, Box<dyn std::error::Error>> {
    wait_for(|| Ok(Client::connect_to(socket).is_ok_and(|client| client.status().is_ok())))?;
    Ok(Client::connect_to(socket)?)
}

fn wait_for(
    mut condition: impl FnMut() -> Result<bool, Box<dyn std::error::Error>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition()? {
        if Instant::now() > until {
            return Err("not ready within 20 s".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn stop(service: &mut Child) -> Result<(), Box<dyn std::error::Error>> {
    let pid = rustix::process::Pid::from_child(service);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    service.wait()?;
    Ok(())
}
