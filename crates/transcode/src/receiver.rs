//! The receiver's side: undoes what is lossless, and runs what the sender left.

use super::{Crop, Data, Gray, Header, Huffman, Lz77, Reduce, TranscodeError, Transcoder};

/// An event's data after all transcoders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub data: Data,
    /// What the sender applied and what this host ran.
    pub header: Header,
}

/// The transcoder of this room with this name, such as `crop:40`; `None`: there is none.
pub fn named(name: &str) -> Option<Box<dyn Transcoder>> {
    let percent = |text: &str| text.parse().ok().filter(|percent| (1..=100).contains(percent));
    match name.split_once(':') {
        None if name == "gray" => Some(Box::new(Gray)),
        None if name == "huffman" => Some(Box::new(Huffman)),
        None if name == "lz77" => Some(Box::new(Lz77)),
        Some(("crop", text)) => Some(Box::new(Crop::new(percent(text)?))),
        Some(("reduce", text)) => Some(Box::new(Reduce::new(percent(text)?))),
        _ => None,
    }
}

/// Reads the bytes of an event. `own` are transcoders of the application, which go before those of this room; data grows
/// to at most `most` bytes.
///
/// # Errors
/// [`TranscodeError`]: the header or the data is broken, or this host does not know a transcoder. Nothing of the event is
/// used then.
pub fn receive(bytes: &[u8], own: &mut [Box<dyn Transcoder>], most: usize) -> Result<Received, TranscodeError> {
    let (header, data) = Header::parse(bytes)?;
    if data.len() > most {
        return Err(TranscodeError::Broken { name: "event".to_owned(), length: data.len(), most });
    }
    let mut data = Data::of(data.to_vec());
    for name in header.applied.iter().rev() {
        data = with(own, name, |transcoder| transcoder.undo(data, most))?;
    }
    for name in &header.left {
        data = with(own, name, |transcoder| transcoder.apply(&data))?;
    }
    Ok(Received { data, header })
}

fn with<R>(
    own: &mut [Box<dyn Transcoder>],
    name: &str,
    act: impl FnOnce(&mut dyn Transcoder) -> Result<R, TranscodeError>,
) -> Result<R, TranscodeError> {
    if let Some(own) = own.iter_mut().find(|own| own.name() == name) {
        return act(own.as_mut());
    }
    let mut known = named(name).ok_or_else(|| TranscodeError::Unknown(name.to_owned()))?;
    act(known.as_mut())
}
