//! Transcoders before `submit`, between two daemons: a sink on another host is told what was applied, and undoes what is
//! lossless.

mod common;

use std::path::Path;

use common::{PATIENCE, connected, eventually, quiet};
use qfabric_client::ClientError;
use qfabric_client::channel::{
    Channel, Channels, Sink, SinkOptions, Source, SourceOptions, Spec, Submission, Transcoder, Transcoders, transcoded,
};
use qfabric_daemon::{Embedded, EngineName, Scouting};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_transcode::{Data, Gray, Huffman, Image, named};
use qfabric_types::Nanos;

/// A daemon that other ones reach by a socket in the folder, and a connection to it.
fn host(name: &str, folder: &Path, other: &str) -> (Embedded, Channels) {
    let mut config = quiet();
    config.control.budget = Nanos::ZERO;
    let address = |name: &str| format!("unix:{}", folder.join(name).display());
    let channels = &mut config.channels;
    (channels.enabled, channels.engine, channels.insecure) = (true, EngineName::Tcp, true);
    (channels.host, channels.priority, channels.scouting) = (Some(name.parse().unwrap()), 0, Scouting::Configured);
    (channels.listen, channels.connect) = (vec![address(name)], vec![address(other)]);
    let service = Embedded::start(config).unwrap();
    let channels = Channels::connect(&connected(service.socket())).unwrap();
    (service, channels)
}

/// The channel of another host, as soon as this host knows it.
fn opened(channels: &Channels, name: &str) -> Channel {
    let mut channel = None;
    eventually("the channel is known", || {
        channel = channels.open(name).ok();
        channel.is_some()
    });
    channel.unwrap()
}

/// A transcoder of the room `transcode`.
struct Of(Box<dyn qfabric_transcode::Transcoder>);

impl Transcoder for Of {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply(&mut self, data: &[u8]) -> Result<Vec<u8>, String> {
        let data = self.0.apply(&Data::of(data.to_vec())).map_err(|error| error.to_string())?;
        Ok(data.bytes().into_owned())
    }
}

/// Gray is needed, compression is not.
fn chain() -> Transcoders {
    let gray = Transcoders::behind(4).mandatory(Of(Box::new(Gray))).unwrap();
    gray.optional(Of(Box::new(Huffman))).unwrap()
}

#[test]
fn a_sink_on_another_host_knows_what_was_applied_and_gets_the_gray_image() {
    if !may_reserve() {
        return;
    }
    let (_lock, folder) = (live_lock(), tempfile::tempdir().unwrap());
    let ((_one, here), (_two, there)) = (host("alpha", folder.path(), "beta"), host("beta", folder.path(), "alpha"));
    let mine = here.create("video", &Spec::of("struct frame { int number; };")).unwrap();
    let theirs = opened(&there, "video");
    let mut sink = theirs.sink(&SinkOptions::default()).unwrap();
    let source = mine.source_subscribe(&SourceOptions::default()).unwrap();
    source.set_transcoders(Some(chain()));
    let image = Image::new(64, 64, 3, vec![90; 3 * 64 * 64]).unwrap();
    let payload = [&7i32.to_le_bytes()[..], &image.to_pnm()].concat();
    let event = Submission { payload: &payload, attributes: &[("rate", 25)], ..Submission::default() };
    eventually("the sink on the other host is known", || source.submit_and_wait(&event).unwrap().remote == 1);
    let received = sink.next(PATIENCE).unwrap().expect("the event came");
    let event = received.event();
    assert_eq!((transcoded(&event.attributes), event.attributes.get("rate")), (vec!["gray", "huffman"], Some(25)));
    let (head, data) = event.payload.split_at(4);
    assert!(head == 7i32.to_le_bytes() && data.len() < image.to_pnm().len() / 3);
    let undone = named("huffman").unwrap().undo(Data::of(data.to_vec()), 1 << 20).unwrap();
    let Data::Image(gray) = Data::of(undone.bytes().into_owned()) else { panic!("no image") };
    assert_eq!((gray.size(), gray.channels()), ((64, 64), 1));
}

/// A channel, which closes when it is dropped, and a source and a sink of it.
fn video(channels: &Channels) -> (Channel, Source, Sink) {
    let video = channels.create("video", &Spec::of("struct frame { int number; };")).unwrap();
    let sink = video.sink(&SinkOptions::default()).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    (video, source, sink)
}

#[test]
fn an_event_that_lacks_a_needed_transcoder_is_not_submitted_and_without_a_chain_it_is() {
    if !may_reserve() {
        return;
    }
    let (_lock, folder) = (live_lock(), tempfile::tempdir().unwrap());
    let (_service, channels) = host("alpha", folder.path(), "beta");
    let (_video, source, mut sink) = video(&channels);
    source.set_transcoders(Some(chain()));
    let text = Submission { payload: b"7777no image", ..Submission::default() };
    let refused = source.submit_and_wait(&text).unwrap_err().to_string();
    assert!(refused.contains("the transcoder gray failed"), "{refused}");
    source.set_transcoders(None);
    source.submit_and_wait(&text).unwrap();
    let received = sink.next(PATIENCE).unwrap().expect("the event came");
    assert_eq!((received.event().payload, transcoded(&received.event().attributes)), (text.payload, Vec::new()));
}

/// Adds its name to the data; fails if the data begins with `!`.
struct Marks(&'static str);

impl Transcoder for Marks {
    fn name(&self) -> &str {
        self.0
    }

    fn apply(&mut self, data: &[u8]) -> Result<Vec<u8>, String> {
        if data.starts_with(b"!") { Err("no mark".to_owned()) } else { Ok([data, self.0.as_bytes()].concat()) }
    }
}

#[test]
fn transcoders_run_in_the_given_order_and_an_optional_one_that_fails_is_left_out() {
    if !may_reserve() {
        return;
    }
    let (_lock, folder) = (live_lock(), tempfile::tempdir().unwrap());
    let (_service, channels) = host("alpha", folder.path(), "beta");
    let (_video, source, mut sink) = video(&channels);
    // The order is not that of the names, in which attributes are sorted on their way.
    let chain = Transcoders::behind(4).optional(Marks("b")).unwrap().optional(Marks("a")).unwrap();
    source.set_transcoders(Some(chain));
    for (payload, expected, applied) in
        [(&b"7777data"[..], &b"7777databa"[..], vec!["b", "a"]), (b"7777!data", b"7777!data", vec![])]
    {
        source.submit_patiently(&Submission { payload, ..Submission::default() }, PATIENCE).unwrap();
        let received = sink.next(PATIENCE).unwrap().expect("the event came");
        assert_eq!((received.event().payload, transcoded(&received.event().attributes)), (expected, applied));
    }
    let short = source.submit(&Submission { payload: b"777", ..Submission::default() }).unwrap_err().to_string();
    assert!(short.contains("3 bytes; the transcoders begin behind 4"), "{short}");
}

#[test]
fn a_name_that_no_attribute_could_have_is_refused() {
    for name in ["", "crop:40", "a_name_of_twenty_two_c", "a"] {
        let chain = Transcoders::default().optional(Marks("a")).unwrap();
        assert!(matches!(chain.optional(Marks(name)), Err(ClientError::Value(_))), "{name}");
    }
}
