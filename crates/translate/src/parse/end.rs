//! The tables `[local]` and `[peer]`.

use qfabric_types::{Bytes, Nanos};

use super::InvalidStream;
use super::section::{Item, Section};
use crate::stream::{Computation, End, Medium, Peer, Stream, TransportCost};

/// The longest period that a reservation may have.
const MAX_COMPUTATION: Nanos = Nanos::from_millis(4_000);
const MEMORY: (u64, u64) = (1, Bytes::MAX.get());

pub(super) fn local(section: &Section) -> Result<End, InvalidStream> {
    section.check_keys(&["interface", "memory", "computation", "profile", "transport"])?;
    end(section)
}

pub(super) fn peer(section: &Section) -> Result<Peer, InvalidStream> {
    section.check_keys(&["host", "interface", "memory", "computation", "profile", "transport"])?;
    let host = section.require("host", "host = \"bob\"")?.name()?;
    section.require("interface", "interface = \"eth0\"")?;
    Ok(Peer { host, end: end(section)? })
}

fn end(section: &Section) -> Result<End, InvalidStream> {
    let computation = by_medium(section.get("computation"), "computation", time)?;
    let profile = by_medium(section.get("profile"), "profile", profile)?;
    let [video, sound] = [(computation[0].clone(), profile[0].clone()), (computation[1].clone(), profile[1].clone())]
        .map(|pair| match pair {
            (Some(_), Some(_)) => Err(()),
            (time, profile) => Ok(time.or(profile)),
        });
    let twice = |()| {
        let item = section.get("profile").expect("read above");
        item.conflict("computation has a time for the same medium", "keep one of the two")
    };
    Ok(End {
        interface: section.get("interface").map(|item| interface(&item)).transpose()?,
        memory: section.get("memory").map_or(Ok(Bytes::ZERO), |item| item.size_within(MEMORY))?,
        video: video.map_err(twice)?,
        sound: sound.map_err(twice)?,
        transport: section.get("transport").map(|item| transport(&item)).transpose()?,
    })
}

fn interface(item: &Item) -> Result<qfabric_types::InterfaceName, InvalidStream> {
    item.parsed("the name of a network interface in quotes, such as \"eth0\"")
}

/// A time for each frame, or a table with the times of a message and of a megabyte.
fn transport(item: &Item) -> Result<TransportCost, InvalidStream> {
    if !item.is_table() {
        return item.time_up_to(MAX_COMPUTATION).map(TransportCost::Frame);
    }
    let section = item.section("transport")?;
    section.check_keys(&["message", "megabyte"])?;
    let time = |key, example| section.require(key, example)?.time_up_to(MAX_COMPUTATION);
    Ok(TransportCost::Message {
        message: time("message", "message = \"50us\"")?,
        megabyte: time("megabyte", "megabyte = \"60ms\"")?,
    })
}

fn time(item: &Item) -> Result<Computation, InvalidStream> {
    item.time_up_to(MAX_COMPUTATION).map(Computation::Measured)
}

fn profile(item: &Item) -> Result<Computation, InvalidStream> {
    const EXPECTED: &str = "the name of a profile in quotes, 1 to 255 characters";
    let name = item.text(EXPECTED)?;
    let is_usable = (1..=255).contains(&name.len()) && !name.chars().any(char::is_control);
    is_usable.then(|| Computation::Profile(name.to_owned())).ok_or_else(|| item.value(EXPECTED))
}

/// One value for all media, or a table with `video` and `sound`.
fn by_medium(
    item: Option<Item>,
    path: &'static str,
    read: impl Fn(&Item) -> Result<Computation, InvalidStream>,
) -> Result<[Option<Computation>; 2], InvalidStream> {
    let Some(item) = item else { return Ok([None, None]) };
    if !item.is_table() {
        let value = read(&item)?;
        return Ok([Some(value.clone()), Some(value)]);
    }
    let section = item.section(path)?;
    section.check_keys(&["video", "sound"])?;
    let of = |key| section.get(key).map(|item| read(&item)).transpose();
    Ok([of("video")?, of("sound")?])
}

/// A value per medium needs that medium; one value for all media needs a stream with one medium.
pub(super) fn check_media(root: &Section, stream: &Stream) -> Result<(), InvalidStream> {
    for side in ["local", "peer"] {
        let Some(section) = root.section(side)? else { continue };
        for item in ["computation", "profile"].into_iter().filter_map(|key| section.get(key)) {
            check_item(&item, stream)?;
        }
    }
    Ok(())
}

fn check_item(item: &Item, stream: &Stream) -> Result<(), InvalidStream> {
    if !item.is_table() {
        let is_ambiguous = stream.media().count() > 1;
        let next_step = "write a table such as { video = \"8ms\", sound = \"1ms\" }";
        return if is_ambiguous { Err(item.conflict("the stream has two media", next_step)) } else { Ok(()) };
    }
    let section = item.section("computation")?;
    for (key, medium) in [("video", Medium::Video), ("sound", Medium::Sound)] {
        if let Some(found) = section.get(key).filter(|_| !stream.media().any(|other| other == medium)) {
            return Err(found.conflict("the stream lacks this medium", "remove it, or describe the medium"));
        }
    }
    Ok(())
}
