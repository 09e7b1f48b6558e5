//! Transcoders of a stream's source, before `submit` (000 §6.2): which of them run is chosen by the energy that they save.
//!
//! ```text
//!   source:   image ─▶ Pipeline: predict each chain, choose by TEQ, run, learn ─▶ header + data ─▶ submit
//!   sink:     event ─▶ receive: undo what is lossless, run what the sender left ─▶ image
//! ```
//! A client gives the stages in its order; a stage is mandatory or optional and has one or more settings, such as the
//! presets of an encoder. The header tells the receiver what was applied and what it has to run itself. Everything that
//! comes from the network is bounded and hostile until parsed.
//!
//! Units: sizes in bytes, kilobytes of 1000 bytes in tables, times in seconds, energy in joules per image.
#![forbid(unsafe_code)]

pub mod corpus;
mod data;
mod deflate;
mod header;
mod images;
mod pipeline;
mod receiver;

pub use data::{Data, Image, InvalidImage, MAX_PIXEL_BYTES};
pub use deflate::{Huffman, Lz77};
pub use header::{Header, InvalidHeader, MAX_NAME, MAX_NAMES};
pub use images::{Crop, Gray, Reduce};
pub use pipeline::{InvalidPipeline, MAX_CHAINS, Pipeline, Prepared, Setting, Stage};
pub use receiver::{Received, named, receive};

/// A function that makes the data of a stream smaller.
pub trait Transcoder: Send {
    /// Its name with its parameters, such as `crop:40`; the receiver is told this name. At most [`MAX_NAME`] bytes.
    fn name(&self) -> &str;

    /// Transcodes one image.
    ///
    /// # Errors
    /// [`TranscodeError`]; the image is then sent without this transcoder.
    fn apply(&mut self, data: &Data) -> Result<Data, TranscodeError>;

    /// Undoes a lossless transcoder, with a result of at most `most` bytes. A lossy one leaves the data as it is.
    ///
    /// # Errors
    /// [`TranscodeError`]: the data is not an output of this transcoder, or larger than `most` when undone.
    fn undo(&self, data: Data, most: usize) -> Result<Data, TranscodeError> {
        let _ = most;
        Ok(data)
    }
}

/// Data that a transcoder cannot process.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TranscodeError {
    /// A transcoder of images got other data.
    #[error("{0} needs an image, but got data without a picture; put it before compression")]
    NoImage(String),
    /// Compressed data is broken, or grows beyond the limit.
    #[error("{name}: {length} bytes are broken, or are more than {most} bytes when undone; nothing was used")]
    Broken { name: String, length: usize, most: usize },
    /// The receiver does not know a transcoder that must run.
    #[error("there is no transcoder {0:?} here; use gray, crop:PERCENT, reduce:PERCENT, huffman or lz77, or add it")]
    Unknown(String),
    #[error(transparent)]
    Image(#[from] InvalidImage),
    #[error(transparent)]
    Header(#[from] InvalidHeader),
    /// A transcoder of the application failed.
    #[error("{name}: {why}")]
    Own { name: String, why: String },
}

/// The examples of the guide's page on energy.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/src/energy.md")]
    struct Energy;
}
