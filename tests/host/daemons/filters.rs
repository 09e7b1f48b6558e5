//! Filters on other hosts, and whose they are.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_client::Client;
use qfabric_client::channel::{Channels, Direction, Filter, FilterScope, Spec};

use crate::host::{Answer, Host, Site, eventually};
use crate::talk::{FORMAT, Reader, Sender, enter};

const PERIOD: Duration = Duration::from_millis(20);

/// `qfabric channel sub video` with an OUT-filter that lets nothing pass.
fn subscribe(host: &Host) -> Child {
    std::fs::write(host.folder.join("none.ec"), "return 0;").unwrap();
    let mut command = host.command(&["channel", "sub", "video", "--wait", "--out-filter", "none.ec"]);
    command.stdout(Stdio::null()).spawn().unwrap()
}

fn filters(host: &Host) -> Vec<String> {
    let filters = host.show("video").map(|info| info.filters).unwrap_or_default();
    filters.iter().map(|filter| filter.name.to_string()).collect()
}

#[test]
fn a_filter_on_other_hosts_goes_with_the_command_that_shipped_it_and_with_its_host() {
    let Some(mut site) = Site::trusting(&[0, 0, 1]) else { return };
    let _sender = Sender::start(&site[0], "video", 100, PERIOD);
    let mut command = subscribe(&site[1]);
    eventually("it is there", || filters(&site[0]).len() == 1);
    site[0].run(&["channel", "show", "video"]).expect(0, &["out-filter sub-h1-", " of h1: "]);
    // A source that joins later gets it too: what is not wanted is not sent.
    let _later = Sender::start(&site[2], "video", 100, PERIOD);
    eventually("it follows", || filters(&site[2]).len() == 1);
    let since = Instant::now();
    command.kill().unwrap();
    command.wait().unwrap();
    eventually("it is gone", || [0, 1, 2].iter().all(|host| filters(&site[*host]).is_empty()));
    println!("kill -9 of the command: its filters were gone after {} ms", since.elapsed().as_millis());

    let mut command = subscribe(&site[1]);
    eventually("it is there", || [0, 2].iter().all(|host| filters(&site[*host]).len() == 1));
    site.lan.cable(2, false);
    eventually("who is cut off has forgotten it", || filters(&site[2]).is_empty());
    site.lan.cable(2, true);
    eventually("and gets it again", || filters(&site[2]).len() == 1);
    let since = Instant::now();
    site.kill(1);
    eventually("it is gone", || [0, 2].iter().all(|host| filters(&site[*host]).is_empty()));
    println!("kill -9 of the daemon: its filters were gone after {} ms", since.elapsed().as_millis());
    let _ = command.wait();
}

#[test]
fn a_filter_is_changed_by_its_user_and_root_only() {
    let Some(site) = Site::trusting(&[0, 0]) else { return };
    let mine = site[0].channels();
    let video = enter(&mine, "video", &Spec::of(FORMAT));
    let _reader = Reader::start(&site[1], "video");
    eventually("both hold it", || site[0].show("video").is_some_and(|info| info.hosts.len() == 2));
    // A starving host may answer too late.
    eventually("both have it", || {
        let wide = video.install(Direction::Out, "mine", &filter("return 1;")).unwrap();
        assert_eq!(wide.hosts.len(), 2, "{wide:?}");
        wide.hosts.iter().all(|answer| answer.refused.is_none())
    });
    for (host, by) in [(&site[0], "user 0"), (&site[1], "the host h0")] {
        let said = as_nobody(&site, host);
        let why = format!("the filter `mine` was installed by {by}");
        assert!(said.iter().all(|said| said.contains(&why)) && said.len() == 3, "{said:?}");
        assert_eq!(filters(host), ["mine"]);
    }
    video.set_parameter(Direction::Out, "mine", "most", 1, FilterScope::Here).unwrap_err();
    let turned = filter("return input.size < get_attribute(most);");
    video.install(Direction::Out, "mine", &turned).unwrap();
    video.set_parameter(Direction::Out, "mine", "most", 1, FilterScope::All).unwrap();
    drop((video, mine));
    eventually("it went with its connection", || site.hosts().iter().all(|host| filters(host).is_empty()));
}

fn filter(code: &str) -> Filter {
    Filter { code: code.into(), to: FilterScope::All, ..Filter::default() }
}

/// In the environment of a process of somebody else: the daemon's socket.
const SOCKET: &str = "QFABRIC_TEST_NOBODY";

/// What somebody else on the host is told who wants to replace, change and remove the filter `mine`.
fn as_nobody(site: &Site, host: &Host) -> Vec<String> {
    let program = site.folder.path().join("nobody");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(site.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
    command.args(["--exact", "filters::nobody_process", "--nocapture"]).env(SOCKET, host.socket());
    let answer = Answer::of(&mut command);
    answer.expect(0, &[]);
    answer.out.lines().filter_map(|line| line.strip_prefix("refused: ").map(str::to_owned)).collect()
}

/// Started by [`as_nobody`].
#[test]
fn nobody_process() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let channels = Channels::connect(&Client::connect_to(socket).unwrap()).unwrap();
    let video = channels.open("video").unwrap();
    let replaced = video.install(Direction::Out, "mine", &filter("return 0;")).unwrap_err();
    let changed = video.set_parameter(Direction::Out, "mine", "most", 1, FilterScope::Here).unwrap_err();
    let removed = video.remove_filter(Direction::Out, "mine", FilterScope::All).unwrap_err();
    for error in [replaced, changed, removed] {
        println!("\nrefused: {error}");
    }
    video.install(Direction::Out, "yours", &Filter { to: FilterScope::Here, ..filter("return 1;") }).unwrap();
}
