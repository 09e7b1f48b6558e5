//! Policies on real daemons: several hosts, a link that is too narrow, and applications without code for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex as Lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_client::Client;
use qfabric_client::channel::{
    Channel, Channels, Direction, Filter, FilterScope, Notice, Registration, SinkOptions, Source, SourceOptions, Spec,
    Submission,
};

use qfabric_types::api::{ApplicationRequest, ApplicationScope};
use qfabric_types::{Class, Contract, Nanos, Profile, Share, ThreadId};

use crate::channels::{FORMAT, Host, PATIENCE, live, two_hosts};
use crate::harness::{Answer, qfabric};
use crate::live::wait_until;

/// Frames per second that the source sends, more than its sinks request.
const FRAMES: u64 = 40;

/// An OUT-filter that models a link: it lets `rate` events per second through to all hosts together.
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

pub(crate) fn connect(host: &Host) -> Channels {
    Channels::connect(&host.client()).unwrap()
}

/// Submits frames until `stop` is set.
fn send_frames(source: &Source, stop: &AtomicBool) {
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

/// The decided rates by host, in frames per second.
fn decided_rates(camera: &Host) -> BTreeMap<String, f64> {
    let list = camera.run(&["policy", "ls", "--json"]).json();
    let decided = list[0]["decided"].as_array().cloned().unwrap_or_default();
    let each = |one: &serde_json::Value| {
        (one["subject"].as_str().unwrap().to_owned(), one["amount"].as_i64().unwrap() as f64 / 1e3)
    };
    decided.iter().map(each).collect()
}

/// Waits until the rates of (high, medium, low) satisfy `wanted`.
fn wait_for_rates(camera: &Host, what: &str, wanted: impl Fn(f64, f64, f64) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let rates = decided_rates(camera);
        let of = |host: &str| rates.get(host).copied().unwrap_or(f64::NAN);
        if wanted(of("high"), of("medium"), of("low")) {
            return;
        }
        assert!(Instant::now() < end, "{what}: {rates:?}\n{:?}", camera.run(&["channel", "show", "video"]));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn set_link_rate(video: &Channel, events_per_second: i64) {
    video.set_parameter(Direction::Out, "zzz.link", "rate", events_per_second, FilterScope::Here).unwrap();
}

/// Four hosts, each of which lists all of them: the camera, and one host for each importance.
fn camera_and_three_viewers(all: &Path) -> [Host; 4] {
    let names = ["camera", "high", "medium", "low"];
    let hosts = names.map(|name| Host::among(all, name, &names));
    let begun = Instant::now();
    while hosts[0].hosts().len() < 4 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", hosts[0].hosts());
    }
    hosts
}

/// Installs [`LINK`]: all sinks together receive `events_per_second`.
fn install_link(video: &Channel, events_per_second: i64) {
    let parameters = [("rate".to_owned(), events_per_second)].into();
    let link = Filter { code: LINK.to_owned(), parameters, ..Filter::default() };
    video.install(Direction::Out, "zzz.link", &link).unwrap();
}

/// Runs `steps` while `source` sends and `viewer` reads.
fn while_frames_flow(source: &Source, viewer: &Channels, steps: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| send_frames(source, &stop));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                viewer.poll(Duration::from_millis(50)).unwrap();
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(steps));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
}

/// The rates of (high, medium, low) follow the rate of the link.
fn expect_degradation_in_order(camera: &Host, video: &Channel) {
    wait_for_rates(camera, "at first all have what they want", |high, medium, low| {
        (high, medium, low) == (25.0, 20.0, 15.0)
    });
    set_link_rate(video, 54);
    wait_for_rates(camera, "low is degraded first", |high, _, low| high > 24.0 && low < 13.0);
    set_link_rate(video, 44);
    wait_for_rates(camera, "low stops before high suffers", |high, medium, low| {
        high >= 20.0 && medium >= 15.0 && low == 0.0
    });
    set_link_rate(video, 1_000);
    wait_for_rates(camera, "all come back", |high, medium, low| high >= 20.0 && medium >= 15.0 && low >= 10.0);
}

#[test]
fn the_least_important_sink_is_degraded_first_and_applications_receive_the_rates() {
    let Some((_alone, all)) = live() else { return };
    let [camera, high, medium, low] = &camera_and_three_viewers(all.path());
    let (channels, viewer) = (connect(camera), connect(low));
    let video = channels.create("video", &Spec::of(FORMAT)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    install_link(&video, 1_000);
    let _high = high.subscribe(&["--wants", "frame_rate=20:25", "--wants", "importance=2"]);
    let _medium = medium.subscribe(&["--wants", "frame_rate=15:20", "--wants", "importance=1"]);
    let opened = viewer.open("video").unwrap();
    let _sink = opened.sink_subscribe(&SinkOptions::default(), |_| {}).unwrap();
    let _role = viewer.register("player", "video", &[("frame_rate", 10, 15), ("importance", 0, 0)]).unwrap();
    camera.run(&["policy", "start", "roles", "--channel", "video"]).expect(0, &["roles.video runs"]);
    camera.run(&["policy", "start", "hold", "--channel", "video", "--rate", "9"]).expect(3, &["roles.video", "stop"]);

    while_frames_flow(&source, &viewer, || expect_degradation_in_order(camera, &video));

    // The source and its sink receive a notice that the stream stops.
    wait_for_rate_notice(&channels, "low", Some(0));
    wait_for_rate_notice(&viewer, "low", Some(0));
    camera.run(&["channel", "show", "video"]).expect(0, &["to high:", "held back"]);
    camera.run(&["policy", "stop", "roles.video"]).expect(0, &[]);
    wait_for_rate_notice(&channels, "high", None); // no policy decides the rate any more
    camera.run(&["policy", "stop", "roles.video"]).expect(3, &["no policy `roles.video`", "policy ls"]);
}

/// Waits until a process receives this rate of a host on `video`; none: the rate is no longer decided.
fn wait_for_rate_notice(channels: &Channels, host: &str, rate: Option<i64>) {
    let wanted = Notice::Decided {
        channel: "video".to_owned(),
        attribute: "app.rate_milli".to_owned(),
        subject: host.to_owned(),
        amount: rate,
    };
    let end = Instant::now() + PATIENCE;
    while !std::iter::from_fn(|| channels.next_notice().unwrap()).any(|notice| notice == wanted) {
        assert!(Instant::now() < end, "no notice: {wanted:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a process receives the decision `wanted`: channel, attribute, subject, amount.
fn wait_for_decision(channels: &Channels, (channel, attribute, subject, amount): (&str, &str, &str, i64)) {
    wait_for_notice(channels, (channel, attribute, subject, Some(amount)));
}

/// As [`wait_for_decision`]; no amount: no policy decides it any more.
fn wait_for_notice(channels: &Channels, wanted: (&str, &str, &str, Option<i64>)) {
    let (channel, attribute, subject, amount) = wanted;
    let wanted = Notice::Decided {
        channel: channel.to_owned(),
        attribute: attribute.to_owned(),
        subject: subject.to_owned(),
        amount,
    };
    let (end, mut seen) = (Instant::now() + PATIENCE, Vec::new());
    while !seen.contains(&wanted) {
        assert!(Instant::now() < end, "{wanted:?} is not among {seen:?}");
        std::thread::sleep(Duration::from_millis(20));
        seen.extend(std::iter::from_fn(|| channels.next_notice().unwrap()));
    }
}

#[test]
fn a_group_divides_its_capacity_among_its_hosts_and_reservations_follow() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let (ours, theirs) = (connect(&alpha), connect(&beta));
    let wants = [("cpu_most", 100_000, 900_000)];
    let _player = ours.register("player", "crew", &wants).unwrap();
    let mixer = theirs.register("mixer", "crew", &wants).unwrap();
    let client = alpha.client();
    let reserved = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        // A thread of this process under a reservation. It uses no CPU time.
        let thread = scope.spawn(|| {
            let contract =
                Contract { max_bandwidth: Share::from_ppm(700_000), ..Contract::new("player", Nanos::from_millis(40)) };
            let covers = ApplicationScope::Thread(ThreadId(rustix::thread::gettid().as_raw_nonzero().get()));
            let request = ApplicationRequest { pid: std::process::id() as i32, covers, contract };
            let admitted = client.admit(&request).unwrap();
            reserved.wait();
            reserved.wait();
            client.release(admitted.id).unwrap();
        });
        reserved.wait();
        let start =
            ["policy", "start", "group", "--group", "crew", "--attribute", "app.cpu_most", "--capacity", "1000000"];
        alpha.run(&start).expect(0, &["group.crew runs", "1000000 of app.cpu_most"]);
        beta.run(&start).expect(0, &[]);
        wait_for_decision(&theirs, ("quality:group.crew", "app.cpu_most", "mixer", 500_000));
        wait_for_decision(&ours, ("quality:group.crew", "app.cpu_most", "player", 500_000));
        drop(mixer);
        wait_for_decision(&ours, ("quality:group.crew", "app.cpu_most", "player", 900_000));
        let end = Instant::now() + PATIENCE;
        while client.applications().unwrap()[0].contract.max_bandwidth != Share::from_ppm(900_000) {
            assert!(Instant::now() < end, "{:?}", client.applications());
            std::thread::sleep(Duration::from_millis(20));
        }
        reserved.wait();
        thread.join().unwrap();
    });
    alpha.run(&["policy", "ls"]).expect(0, &["group.crew", "app.cpu_most for player: 900000"]);
}

/// A filter that lets small events pass, up to the size `most`.
fn install_size_filter(video: &Channel, most: i64) {
    let small = Filter {
        code: "return input.size < get_attribute(most);".to_owned(),
        parameters: [("most".to_owned(), most)].into(),
        ..Filter::default()
    };
    video.install(Direction::Out, "small", &small).unwrap();
}

/// Starts a policy that is written in E-code, for the filter `small` of the channel `video`.
fn start_code(host: &Host, name: &str, text: &str) -> Answer {
    let file = host.folder.join("policy.ec");
    std::fs::write(&file, text).unwrap();
    let start = ["policy", "start", "code", "--channel", "video", "--filter", "out/small"];
    host.run(&[&start[..], &["--name", name, "--file", file.to_str().unwrap()]].concat())
}

/// Decides the parameter of the filter and a rate.
const CALM: &str = "struct input { long value, here; };\nstruct output { long most, rate_milli; };\n\
                    output.most = input.here ? 100 : 10;\noutput.rate_milli = 7000;\nreturn 1;";
const UNKNOWN_OUTPUT: &str = "struct output { long most; };\noutput.mst = 1;";
const DIVIDES_BY_ZERO: &str = "struct output { long level; };\noutput.level = 1 / (input.value - input.value);";

#[test]
fn a_few_lines_of_e_code_are_a_policy() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::among(all.path(), "alpha", &[]);
    let channels = connect(&alpha);
    let video = channels.create("video", &Spec::of(FORMAT)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let _sink = video.sink(&SinkOptions::default()).unwrap();
    install_size_filter(&video, 10);
    let payload = [1i32.to_le_bytes(), 50i32.to_le_bytes()].concat();
    let event = Submission { payload: &payload, ..Submission::default() };
    assert_eq!(source.submit_and_wait(&event).unwrap().filtered, 1);
    start_code(&alpha, "calm", UNKNOWN_OUTPUT).expect(3, &["mst"]);
    start_code(&alpha, "calm", CALM).expect(0, &["calm runs: 5 lines of E-code for filter out/small"]);
    start_code(&alpha, "calm", CALM).expect(3, &["there is a policy `calm`"]);
    start_code(&alpha, "broken", DIVIDES_BY_ZERO).expect(0, &[]);
    wait_for_decision(&channels, ("video", "app.rate_milli", "alpha", 7_000));
    assert_eq!(source.submit_and_wait(&event).unwrap().filtered, 0, "the filter's parameter has changed");
    alpha.run(&["channel", "show", "video"]).expect(0, &["to alpha: 7.0/s"]);
    let list = alpha.run(&["policy", "ls"]);
    list.expect(0, &["broken: the last fault: ", "zero", "calm: app.rate_milli for alpha: 7.0/s"]);
    alpha.run(&["policy", "stop", "calm"]).expect(0, &[]);
    assert!(!alpha.run(&["channel", "show", "video"]).out.contains("7.0/s"), "no policy paces the channel any more");
}

/// The source sends 40 events per second, 20 are wanted. Events before the first report are not paced.
fn is_paced(host: &Host) -> bool {
    let shown = host.run(&["channel", "show", "video", "--json"]).json();
    ["passed", "held"].iter().all(|count| shown["paced"][0][count].as_u64().is_some_and(|count| count > 10))
}

#[test]
fn a_rate_is_held_at_the_hosts_of_sinks() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let (channels, theirs) = (connect(&alpha), connect(&beta));
    let video = channels.create("video", &Spec::of(FORMAT)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let opened = theirs.open("video").unwrap();
    let _sink = opened.sink_subscribe(&SinkOptions::default(), |_| {}).unwrap();
    let decisions = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = decisions.clone();
    channels.on_decided(move |decided| kept.lock().unwrap().push((decided.subject.to_owned(), decided.amount)));
    let start = ["policy", "start", "hold", "--channel", "video", "--rate", "20", "--json"];
    assert_eq!(alpha.run(&start).json()["policy"]["rate"], 20.0);
    alpha.run(&["policy", "start", "spread", "--channel", "video"]).expect(0, &["spread.video runs"]);
    let stop = AtomicBool::new(false);
    let paced = std::thread::scope(|scope| {
        scope.spawn(|| send_frames(&source, &stop));
        let end = Instant::now() + PATIENCE;
        let poll = || {
            theirs.poll(Duration::from_millis(20)).unwrap();
            channels.poll(Duration::ZERO).unwrap();
        };
        let found = std::iter::from_fn(|| {
            (0..25).for_each(|_| poll());
            (Instant::now() < end).then(|| is_paced(&alpha))
        });
        let is_found = found.into_iter().any(|found| found);
        stop.store(true, Ordering::Relaxed);
        is_found
    });
    assert!(paced, "more than 10 events are let through, and more than 10 are held back");
    let list = alpha.run(&["policy", "ls", "--json"]).json();
    let called = |name: &str| list.as_array().unwrap().iter().any(|one| one["name"] == name && one["calls"] != 0);
    assert!(
        called("hold.video") && called("spread.video"),
        "both policies receive the reports of the other host: {list}"
    );
    assert_eq!(decisions.lock().unwrap().first(), Some(&("beta".to_owned(), Some(20_000))));
}

#[test]
fn the_quality_falls_while_the_link_is_too_narrow_and_the_reason_is_shown() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = two_hosts(all.path());
    let (channels, theirs) = (connect(&alpha), connect(&beta));
    let video = channels.create("video", &Spec::of(FORMAT)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    install_link(&video, 1_000);
    let opened = theirs.open("video").unwrap();
    let _sink = opened.sink_subscribe(&SinkOptions::default(), |_| {}).unwrap();
    let rate = FRAMES.to_string();
    let start = ["policy", "start", "adapt", "--channel", "video", "--rate", &rate, "--ladder", "quality=80,60"];
    alpha.run(&start).expect(0, &["adapt.video runs", "quality=80,60"]);
    alpha.run(&[&start[..], &["--name", "other"]].concat()).expect(3, &["adapt.video", "with what quality"]);
    alpha.run(&["policy", "why", "film"]).expect(3, &["no policy has the name `film`", "policy ls"]);
    while_frames_flow(&source, &theirs, || {
        wait_for_decision(&channels, ("video", "app.level", "quality", 80));
        set_link_rate(&video, 10);
        wait_for_decision(&channels, ("video", "app.level", "quality", 60));
        alpha.run(&["policy", "ls"]).expect(0, &["adapt.video: app.level for quality: 60"]);
        let why = ["lower to quality 60", "because of", "at beta, the median of 1 sinks", "limited by link", "keep"];
        alpha.run(&["policy", "why", "video"]).expect(0, &why);
        set_link_rate(&video, 1_000);
        wait_for_decision(&channels, ("video", "app.level", "quality", 80));
    });
    let list = alpha.run(&["policy", "why", "adapt.video", "--json"]).json();
    let last = list.as_array().unwrap().last().unwrap();
    assert!(last["cause"].as_str().unwrap().contains("kept for") && last["candidates"][0]["chosen"] == true, "{last}");
}

/// Reports an application's rates and CPU time about five times a second until `steps` have ended.
fn while_reported(member: &Registration, reports: &Lock<Vec<(&str, i64)>>, steps: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let now = reports.lock().unwrap().clone();
                now.iter().for_each(|(attribute, value)| member.report(attribute, *value).unwrap());
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(steps));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
}

/// Runs `steps` with a thread of this process under the contract. It uses no CPU time.
fn while_under_contract(client: &Client, contract: Contract, steps: impl FnOnce()) {
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let covers = ApplicationScope::Thread(ThreadId(rustix::thread::gettid().as_raw_nonzero().get()));
            let request = ApplicationRequest { pid: std::process::id() as i32, covers, contract };
            let admitted = client.admit(&request);
            barrier.wait();
            barrier.wait();
            client.release(admitted.unwrap().id).unwrap();
        });
        barrier.wait();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(steps));
        barrier.wait();
        ended.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
}

fn contract_in_force(client: &Client) -> Contract {
    client.applications().unwrap().remove(0).contract
}

#[test]
fn the_policy_cpu_raises_a_guarantee_and_gives_it_back_when_it_stops() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::among(all.path(), "alpha", &[]);
    let (channels, client) = (connect(&alpha), alpha.client());
    let _video = channels.create("video", &Spec::of(FORMAT)).unwrap();
    let camera = channels.register("camera", "video", &[]).unwrap();
    // 20 events per second need 0.01 CPU · 20 and 15 %.
    let reports = Lock::new(vec![("app.cpu", 50_000), ("app.generated_milli", 5_000)]);
    let profile = Some(Profile { costs: vec![Nanos::from_millis(1); 50], hints: Vec::new() });
    let contract = Contract { profile, ..Contract::new("camera", Nanos::from_millis(40)) };
    // The API shows no profile, but what follows from it.
    let has_profile = || client.applications().unwrap().remove(0).invariance.is_some();
    while_under_contract(&client, contract, || {
        let own = contract_in_force(&client);
        assert_eq!((own.class, own.guaranteed), (Class::C, None));
        alpha.run(&["policy", "start", "cpu", "--channel", "video", "--rate", "20"]).expect(0, &["cpu.video runs"]);
        while_reported(&camera, &reports, || {
            wait_until(|| contract_in_force(&client).guaranteed.is_some_and(|share| share >= Share::from_ppm(200_000)));
            assert_eq!(contract_in_force(&client).class, Class::B);
            assert!(has_profile(), "a decision keeps the profile");
            alpha.run(&["policy", "ls"]).expect(0, &["app.cpu_guaranteed for camera"]);
            alpha.run(&["policy", "stop", "cpu.video"]).expect(0, &[]);
            wait_until(|| contract_in_force(&client) == own);
            assert!(has_profile(), "the end of the decision keeps the profile");
        });
    });
}

#[test]
fn the_policy_integrated_never_cuts_the_owners_guarantee_and_its_stop_releases_contract_and_levels() {
    let Some((_alone, all)) = live() else { return };
    let alpha = Host::among(all.path(), "alpha", &[]);
    let (channels, client) = (connect(&alpha), alpha.client());
    let video = channels.create("video", &Spec::of(FORMAT)).unwrap();
    let _source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let (camera, viewer) =
        (channels.register("camera", "video", &[]).unwrap(), channels.register("viewer", "video", &[]).unwrap());
    let of_viewer = |cpu| vec![("app.cpu", cpu), ("app.arrived_milli", 20_000), ("app.shown_milli", 5_000)];
    let (generated, shown) = (Lock::new(vec![("app.generated_milli", 20_000)]), Lock::new(of_viewer(50_000)));
    let guaranteed = Some(Share::from_ppm(300_000));
    let contract = Contract { class: Class::B, guaranteed, ..Contract::new("viewer", Nanos::from_millis(40)) };
    while_under_contract(&client, contract, || {
        let own = contract_in_force(&client);
        let start =
            ["policy", "start", "integrated", "--channel", "video", "--rate", "20", "--ladder", "quality=80,60"];
        alpha.run(&start).expect(0, &["integrated.video runs"]);
        while_reported(&camera, &generated, || {
            while_reported(&viewer, &shown, || {
                wait_for_decision(&channels, ("video", "app.level", "quality", 80));
                wait_until(|| alpha.run(&["policy", "ls"]).out.contains("app.cpu_guaranteed for viewer"));
                // The answer to the command comes after the decision, which asked for less than the owner has.
                assert_eq!(contract_in_force(&client).guaranteed, guaranteed, "a smaller share cuts nothing");
                *shown.lock().unwrap() = of_viewer(100_000);
                wait_until(|| contract_in_force(&client).guaranteed > guaranteed);
                alpha.run(&["policy", "stop", "integrated.video"]).expect(0, &[]);
                wait_until(|| contract_in_force(&client) == own);
                wait_for_notice(&channels, ("video", "app.level", "quality", None));
            });
        });
    });
}

#[test]
fn policies_in_the_configuration_are_checked_at_the_start() {
    let all = tempfile::tempdir().unwrap();
    let file = all.path().join("daemon.toml");
    let check = |text: &str| {
        let channels = "[channels]\nenabled = true\nengine = 'none'\n";
        std::fs::write(&file, format!("{channels}{text}")).unwrap();
        Answer::of(qfabric(all.path()).args(["daemon", "--check", "--config"]).arg(&file))
    };
    check("[[channels.policy]]\nkind = 'roles'\nchannel = 'video'\nevent_bits = 40000\n").expect(0, &[]);
    check("[[channels.policy]]\nkind = 'rules'\nchannel = 'video'\n").expect(2, &["rules", "roles", "hold"]);
    check("[[channels.policy]]\nkind = 'hold'\nchannel = 'video'\n").expect(2, &["rate"]);
    check("report = '1ms'\n").expect(2, &["channels.report", "50ms to 60s"]);
}
