//! Collects the outputs of a node.

use qfabric_channel::{Lane, Node, Output};

/// Frames and notices that a node produced.
#[derive(Debug, Default)]
pub struct NodeOutputs {
    /// Frames to other hosts, with their lane.
    pub frames: Vec<(Lane, Vec<u8>)>,
    /// Number of notices.
    pub notices: u64,
}

impl NodeOutputs {
    /// Takes all pending outputs of a node.
    pub fn take_from(&mut self, node: &mut Node) {
        while let Some(output) = node.poll() {
            match output {
                Output::Send(_, lane, frame) => self.frames.push((lane, node.frame(frame).to_vec())),
                Output::Notice(_) => self.notices += 1,
                _ => {}
            }
        }
    }
}
