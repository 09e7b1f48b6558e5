//! Measures the cost and the latency of events on each path, under a daemon inside this process. Needs root.
//!
//! `cargo run --release -p qfabric-client --example event_cost`

use std::time::{Duration, Instant};

use qfabric_client::ecalls::{Ecalls, MemoryUp, Notice, OwnService, Signals, Subscription, SubscriptionBuilder};
use qfabric_client::{Client, Nanos, clock};
use qfabric_daemon::{Config, Embedded};

const ROUNDS: usize = 2_000;
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before the daemon starts its threads, because they inherit the blocked signal.
    let signals = Signals::keep(40)?;
    let daemon = Embedded::start(Config::default())?;
    let client = Client::connect_to(daemon.socket())?;
    let ecalls = Ecalls::connect(&client)?;
    let own = ecalls.register_service("cost.event", "", "struct event { unsigned long time; };", false)?;
    println!("{:<52} {:>9} {:>9}", "way (µs)", "p50", "p99");
    show("raise_event: the caller's time, nobody subscribed", rounds(|| timed(|| raise(&own))));
    let memory = || SubscriptionBuilder::to("cost.event").memory_up(MemoryUp::default());
    let mut plain = ecalls.subscribe(&memory())?;
    show("raised to read, reader looks at the flag", rounds(|| spun(&own, &mut plain)));
    show("raised to read, reader sleeps", rounds(|| slept(&own, &mut plain)));
    plain.unsubscribe()?;
    let mut filtered = ecalls.subscribe(&memory().code("return input.time != 0;"))?;
    show("… behind a handler, reader looks at the flag", rounds(|| spun(&own, &mut filtered)));
    filtered.unsubscribe()?;
    let mut threaded = ecalls
        .subscribe(&SubscriptionBuilder::to("cost.event").thread().code("return 1;").memory_up(MemoryUp::default()))?;
    show("… behind a handler thread, reader looks at the flag", rounds(|| spun(&own, &mut threaded)));
    threaded.unsubscribe()?;
    let told = ecalls.subscribe(&SubscriptionBuilder::to("cost.event").signal(40))?;
    show("raised to signal", rounds(|| signalled(&own, &signals)));
    told.unsubscribe()?;
    let switches = SubscriptionBuilder::to("sched.wakeup").code("attr.wakes += 1; attr.last = input.time; return 0;");
    show("subscribe: text to running in the kernel", (0..40).map(|_| installed(&ecalls, &switches)).collect());
    let held = ecalls.subscribe(&switches)?;
    let wakes = ecalls.attribute("wakes")?;
    show("fast user-ECall: a thousand stores", rounds(|| timed(|| (0..1000).for_each(|value| wakes.set(value)))));
    drop(held);
    let code = "attr.sum += input.value[0]; return attr.sum * 16 + 1;";
    let calls = ecalls.subscribe(&SubscriptionBuilder::to("app.call").only(std::process::id() as i32).code(code))?;
    show(
        "fast call with a result: a thousand calls",
        rounds(|| timed(|| (0..1000).for_each(|value| call(&calls, value)))),
    );
    answer_calls(&ecalls);
    show("blocking call: another thread answers", rounds(|| timed(|| block(&ecalls))));
    Ok(())
}

fn call(calls: &Subscription, value: i64) {
    let verdict = calls.call([value; 8]).expect("the subscription takes calls");
    assert!(!verdict.blocks(), "the kernel runs the handler");
}

/// Answers the blocking calls of this process, until none comes any more.
fn answer_calls(ecalls: &Ecalls) {
    let server = ecalls.clone();
    std::thread::spawn(move || {
        while let Ok(Some(Notice::Call { call, data, .. })) = server.next_notice(PATIENCE) {
            server.reply(call, &data).expect("the daemon runs");
        }
    });
}

fn block(ecalls: &Ecalls) {
    ecalls.call("cost.event", &[0; 8], Duration::from_secs(4)).expect("an answer");
}

fn rounds(mut round: impl FnMut() -> f64) -> Vec<f64> {
    (0..ROUNDS).map(|_| round()).collect()
}

fn show(what: &str, mut micros: Vec<f64>) {
    micros.sort_by(f64::total_cmp);
    let at = |part: usize| micros[(micros.len() - 1) * part / 100];
    println!("{what:<52} {:>9.1} {:>9.1}", at(50), at(99));
}

fn timed(act: impl FnOnce()) -> f64 {
    let started = Instant::now();
    act();
    started.elapsed().as_nanos() as f64 / 1e3
}

fn raise(own: &OwnService) {
    let now = clock::now().get();
    while own.raise_event(-1, &now.to_le_bytes(), Nanos::ZERO, false).is_err() {
        std::thread::yield_now();
    }
}

/// Microseconds since the time in the event.
fn age(data: &[u8]) -> f64 {
    let raised = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
    clock::now().get().saturating_sub(raised) as f64 / 1e3
}

fn spun(own: &OwnService, events: &mut Subscription) -> f64 {
    raise(own);
    loop {
        if let Some(event) = events.try_next() {
            return age(event.data);
        }
        std::hint::spin_loop();
    }
}

fn slept(own: &OwnService, events: &mut Subscription) -> f64 {
    raise(own);
    events.next(PATIENCE).ok().flatten().map_or(f64::NAN, |event| age(event.data))
}

fn signalled(own: &OwnService, signals: &Signals) -> f64 {
    raise(own);
    signals.next(PATIENCE).ok().flatten().map_or(f64::NAN, |value| age(&value.to_le_bytes()))
}

/// The pause avoids the kernel's grace period (10 ms), which begins if a hook is used again right after its removal.
fn installed(ecalls: &Ecalls, wanted: &SubscriptionBuilder) -> f64 {
    let made = ecalls.subscribe(wanted).expect("it can be installed");
    let took = made.info().installed_in_us as f64;
    drop(made);
    std::thread::sleep(Duration::from_millis(50));
    took
}
