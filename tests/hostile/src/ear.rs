//! Remembers what a node sends, and how often it speaks.

use qfabric_channel::{Lane, Node, Output};

/// What a node wanted.
#[derive(Debug, Default)]
pub struct Ear {
    /// Frames to other hosts, with their lane.
    pub frames: Vec<(Lane, Vec<u8>)>,
    /// What was told.
    pub notices: u64,
}

impl Ear {
    /// Asks a node for all that it wants done.
    pub fn hear(&mut self, node: &mut Node) {
        while let Some(output) = node.poll() {
            match output {
                Output::Send(_, lane, frame) => self.frames.push((lane, node.frame(frame).to_vec())),
                Output::Notice(_) => self.notices += 1,
                _ => {}
            }
        }
    }
}
