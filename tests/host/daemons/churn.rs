//! Members that come and go by the thousand, and commands that are killed.

use std::time::{Duration, Instant};

use qfabric_client::channel::{SinkOptions, SourceOptions, Spec};

use crate::host::{Host, Site, eventually};
use crate::talk::{FORMAT, Reader, Sender, enter};

/// Joins and leaves, of sources and sinks.
const JOINS: usize = 1000;

/// A connection that opens the channel, has as many sources and sinks, one after the other, and leaves.
fn join_and_leave(host: &Host, times: usize) {
    let channels = host.channels();
    let video = enter(&channels, "video", &Spec::of(FORMAT));
    for _ in 0..times {
        let sink = video.sink(&SinkOptions::default()).unwrap();
        sink.set_attribute("load", Some(7)).unwrap();
        drop((sink, video.source_subscribe(&SourceOptions::default()).unwrap()));
    }
}

/// Sources and sinks of the channel on all hosts, as one of them sees it.
fn members(host: &Host) -> usize {
    let hosts = host.show("video").map(|info| info.hosts).unwrap_or_default();
    hosts.iter().map(|host| host.sources.len() + host.sinks.len()).sum()
}

#[test]
fn a_thousand_joins_and_leaves_leave_nothing_behind_and_disturb_nobody() {
    let Some(site) = Site::started(&[0, 1]) else { return };
    let reader = Reader::start(&site[1], "video");
    eventually("the reader is known", || members(&site[0]) == 1);
    let sender = Sender::paced(&site[0], "video", 100, Duration::from_millis(20), &reader);
    let round = |joins: usize| {
        std::thread::scope(|scope| {
            for host in site.hosts() {
                scope.spawn(move || (0..joins / 40).for_each(|_| join_and_leave(host, 10)));
            }
        });
        eventually("nobody else is there", || site.hosts().iter().all(|host| members(host) == 2));
    };
    let files = || site.hosts().iter().map(|host| host.holds().0).collect::<Vec<_>>();
    let memory = || site.hosts().iter().map(|host| host.holds().1).collect::<Vec<_>>();
    round(JOINS / 5);
    let (files_before, before, since) = (files(), memory(), Instant::now());
    round(JOINS);
    let took = since.elapsed();
    let grown: Vec<_> = memory().iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).collect();
    println!("{JOINS} joins and leaves in {} ms; memory grew by {grown:?} KiB of {before:?}", took.as_millis());
    assert!(grown.iter().all(|grown| *grown < 1024), "{grown:?} KiB of {before:?}");
    // The last call's connection may still be closing.
    eventually("files are closed", || files().iter().zip(&files_before).all(|(after, before)| after <= before));
    sender.pause();
    let sent = sender.sent.load(std::sync::atomic::Ordering::Relaxed);
    eventually("who was there all the time got everything", || reader.heard().len() as u64 == sent);
}
