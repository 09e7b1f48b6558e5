//! Lossless compression: Huffman codes alone, and LZ77 with codes that do not depend on the data (000 §6.2.2).
//!
//! Both write a DEFLATE stream, so the receiver needs one decoder. LZ77 uses the fixed codes of the format: repeated
//! strings are found, the frequencies of bytes are not used.

use miniz_oxide::deflate::core::{
    CompressionStrategy, CompressorOxide, TDEFLFlush, compress_to_output, create_comp_flags_from_zip_params,
};
use miniz_oxide::inflate::decompress_to_vec_with_limit;

use super::{Data, TranscodeError, Transcoder};

/// Effort of the search for repeated strings, of 10.
const EFFORT: i32 = 6;

/// Short codes for frequent bytes; repeated strings are not searched.
#[derive(Clone, Copy, Debug, Default)]
pub struct Huffman;

/// Repeated strings become references; frequent bytes get no shorter codes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lz77;

impl Transcoder for Huffman {
    fn name(&self) -> &str {
        "huffman"
    }

    fn apply(&mut self, data: &Data) -> Result<Data, TranscodeError> {
        Ok(Data::Bytes(compressed(&data.bytes(), CompressionStrategy::HuffmanOnly)))
    }

    fn undo(&self, data: Data, most: usize) -> Result<Data, TranscodeError> {
        undone(self.name(), &data.bytes(), most)
    }
}

impl Transcoder for Lz77 {
    fn name(&self) -> &str {
        "lz77"
    }

    fn apply(&mut self, data: &Data) -> Result<Data, TranscodeError> {
        Ok(Data::Bytes(compressed(&data.bytes(), CompressionStrategy::Fixed)))
    }

    fn undo(&self, data: Data, most: usize) -> Result<Data, TranscodeError> {
        undone(self.name(), &data.bytes(), most)
    }
}

fn compressed(bytes: &[u8], strategy: CompressionStrategy) -> Vec<u8> {
    let flags = create_comp_flags_from_zip_params(EFFORT, 0, strategy.into());
    let mut output = Vec::with_capacity(bytes.len() / 2);
    // The callback takes everything, so the compressor reaches the end in one call.
    compress_to_output(&mut CompressorOxide::new(flags), bytes, TDEFLFlush::Finish, |part| {
        output.extend_from_slice(part);
        true
    });
    output
}

fn undone(name: &str, bytes: &[u8], most: usize) -> Result<Data, TranscodeError> {
    let broken = |_| TranscodeError::Broken { name: name.to_owned(), length: bytes.len(), most };
    decompress_to_vec_with_limit(bytes, most).map(Data::of).map_err(broken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn length(mut transcoder: impl Transcoder, bytes: &[u8]) -> usize {
        transcoder.apply(&Data::Bytes(bytes.to_vec())).unwrap().length()
    }

    #[test]
    fn huffman_uses_frequencies_and_lz77_repeated_strings() {
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        let skewed: Vec<u8> = (0..20_000).map(|_| (random() & random() & random()) as u8).collect();
        let phrase: Vec<u8> = (0..200).map(|_| random() as u8).collect();
        let repeated: Vec<u8> = phrase.iter().copied().cycle().take(20_000).collect();
        assert!(length(Huffman, &skewed) < length(Lz77, &skewed));
        assert!(length(Lz77, &repeated) * 10 < length(Huffman, &repeated));
    }

    #[test]
    fn a_bomb_and_broken_bytes_are_refused_with_the_limit() {
        let bomb = Lz77.apply(&Data::Bytes(vec![0; 1 << 20])).unwrap();
        let refused = Lz77.undo(bomb.clone(), 1_000).unwrap_err().to_string();
        assert!(refused.contains("more than 1000 bytes"), "{refused}");
        assert_eq!(Lz77.undo(bomb, 1 << 20).unwrap().length(), 1 << 20);
        assert!(Huffman.undo(Data::Bytes(vec![0xff; 9]), 1_000).is_err());
    }

    proptest! {
        #[test]
        fn undo_gives_back_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
            for transcoder in [&mut Huffman as &mut dyn Transcoder, &mut Lz77] {
                let small = transcoder.apply(&Data::Bytes(bytes.clone())).unwrap();
                let whole = transcoder.undo(small, bytes.len()).unwrap();
                prop_assert_eq!(&*whole.bytes(), &bytes[..]);
            }
        }
    }
}
