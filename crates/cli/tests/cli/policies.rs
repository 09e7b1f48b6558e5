//! Policies on real daemons: four hosts, one link that is too narrow, and nobody who was programmed for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_client::Client;
use qfabric_client::channel::{
    Channel, Channels, Direction, Filter, Notice, SinkOptions, SourceOptions, Spec, Submission, Where,
};

use crate::channels::{FORMAT, Host, live};

/// Long enough for every change here, on a loaded machine; a change for the better is tried every 2 to 16 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// The source sends so many frames per second; what its sinks want is less.
const FRAMES: u64 = 40;

/// A link that carries `rate` events per second, whoever they are for.
const LINK: &str = "
struct input { int sinks; struct { long role; } sink[8]; };
struct output { unsigned char chosen[8]; };
static long credit, last;
static int turn;
long time = now();
credit = min(credit + (time - last) * get_attribute(rate), 3000000000);
last = time;
turn++;
for (int i = 0; i < input.sinks; i++) {
    if (credit >= 1000000000) {
        credit = credit - 1000000000;
        output.chosen[(i + turn) % input.sinks] = 1;
    }
}
return 1;
";

fn connect(host: &Host) -> Channels {
    Channels::connect(&Client::connect_to(host.folder.join("qfabric.sock")).unwrap()).unwrap()
}

/// Frames, until it is told to stop.
fn film(source: &qfabric_client::channel::Source, stop: &AtomicBool) {
    let begun = Instant::now();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let payload = [(number as i32).to_le_bytes(), 0i32.to_le_bytes()].concat();
        source.submit(&Submission { payload: &payload, ..Submission::default() }).unwrap();
        let next = begun + Duration::from_nanos(number * 1_000_000_000 / FRAMES);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// What the policy has decided, by host, in frames per second.
fn decided(camera: &Host) -> BTreeMap<String, f64> {
    let list = camera.run(&["policy", "ls", "--json"]).json();
    let decided = list[0]["decided"].as_array().cloned().unwrap_or_default();
    let each = |one: &serde_json::Value| {
        (one["subject"].as_str().unwrap().to_owned(), one["amount"].as_i64().unwrap() as f64 / 1e3)
    };
    decided.iter().map(each).collect()
}

/// Waits until rates of (high, medium, low) are as wanted.
fn until(camera: &Host, what: &str, wanted: impl Fn(f64, f64, f64) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let rates = decided(camera);
        let of = |host: &str| rates.get(host).copied().unwrap_or(f64::NAN);
        if wanted(of("high"), of("medium"), of("low")) {
            return;
        }
        assert!(Instant::now() < end, "{what}: {rates:?}\n{:?}", camera.run(&["channel", "show", "video"]));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn carries(video: &Channel, events_per_second: i64) {
    video.set_parameter(Direction::Out, "zzz.link", "rate", events_per_second, Where::Here).unwrap();
}

#[test]
fn the_least_important_sink_is_degraded_first_and_applications_are_told() {
    let Some((_alone, all)) = live() else { return };
    let names = ["camera", "high", "medium", "low"];
    let hosts = names.map(|name| Host::among(all.path(), name, &names));
    let [camera, high, medium, low] = &hosts;
    let begun = Instant::now();
    while camera.hosts().len() < 4 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", camera.hosts());
    }
    let channels = connect(camera);
    let video = channels.create("video", &Spec::of(FORMAT)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let link = Filter { code: LINK.to_owned(), parameters: [("rate".to_owned(), 1_000)].into(), ..Filter::default() };
    video.install(Direction::Out, "zzz.link", &link).unwrap();
    let _high = high.subscribe(&["--wants", "frame_rate=20:25", "--wants", "importance=2"]);
    let _medium = medium.subscribe(&["--wants", "frame_rate=15:20", "--wants", "importance=1"]);
    let viewer = connect(low);
    let opened = viewer.open("video").unwrap();
    let _sink = opened.sink_subscribe(&SinkOptions::default(), |_| {}).unwrap();
    let wants = [("frame_rate", 10, 15), ("importance", 0, 0)];
    let _role = viewer.register("player", "video", &wants).unwrap();
    camera.run(&["policy", "start", "roles", "--channel", "video"]).expect(0, &["roles.video runs"]);
    camera.run(&["policy", "start", "hold", "--channel", "video", "--rate", "9"]).expect(3, &["roles.video", "stop"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| film(&source, &stop));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                viewer.poll(Duration::from_millis(50)).unwrap();
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(camera, "at first all have what they want", |high, medium, low| {
                (high, medium, low) == (25.0, 20.0, 15.0)
            });
            carries(&video, 54);
            until(camera, "low is degraded first", |high, _, low| high > 24.0 && low < 13.0);
            carries(&video, 44);
            until(camera, "low stops before high suffers", |high, medium, low| {
                high >= 20.0 && medium >= 15.0 && low == 0.0
            });
            carries(&video, 1_000);
            until(camera, "all come back", |high, medium, low| high >= 20.0 && medium >= 15.0 && low >= 10.0);
        }));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
    assert!(told(&channels).contains(&("low".to_owned(), Some(0))), "the source was told that it stops");
    assert!(told(&viewer).contains(&("low".to_owned(), Some(0))), "and so was its sink");
    camera.run(&["channel", "show", "video"]).expect(0, &["to high:", "held back"]);
    camera.run(&["policy", "stop", "roles.video"]).expect(0, &[]);
    assert!(told(&channels).contains(&("high".to_owned(), None)), "nobody decides any more");
    camera.run(&["policy", "stop", "roles.video"]).expect(3, &["no policy `roles.video`", "policy ls"]);
}

/// What a process was told of rates, by host.
fn told(channels: &Channels) -> Vec<(String, Option<i64>)> {
    std::thread::sleep(Duration::from_millis(300));
    let notices = std::iter::from_fn(|| channels.next_notice().unwrap());
    let decided = notices.filter_map(|notice| match notice {
        Notice::Decided { channel, attribute, subject, amount } => {
            assert_eq!((channel.as_str(), attribute.as_str()), ("video", "app.rate_milli"));
            Some((subject, amount))
        }
        _ => None,
    });
    decided.collect()
}
