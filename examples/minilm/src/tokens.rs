//! Sentences as numbers: WordPiece, by the `tokenizers` crate.

use maquette::prelude::*;
use std::path::Path;
use tokenizers::{PaddingParams, Tokenizer, TruncationParams};

/// Splits sentences into tokens of the model's vocabulary.
pub struct Words(Tokenizer);

/// Sentences of one length: shorter ones are padded.
#[derive(Clone)]
pub struct Tokens {
    /// The tokens, `[batch, length]`.
    pub ids: Tensor,
    /// 1 for a token, 0 for padding, `[batch, length]`.
    pub mask: Tensor,
}

impl Tokens {
    /// The tokens on a device.
    pub fn to_device(&self, device: Device) -> Tokens {
        Tokens { ids: self.ids.to_device(device), mask: self.mask.to_device(device) }
    }
}

impl Words {
    /// By the `tokenizer.json` of this folder; of longer sentences only the first `max_length`
    /// tokens count.
    pub fn load(folder: &Path, max_length: usize) -> Result<Words> {
        let mut tokenizer =
            Tokenizer::from_file(folder.join("tokenizer.json")).map_err(Error::other)?;
        tokenizer
            .with_truncation(Some(TruncationParams { max_length, ..Default::default() }))
            .map_err(Error::other)?;
        // to the longest sentence of the batch, by token 0
        tokenizer.with_padding(Some(PaddingParams::default()));
        Ok(Words(tokenizer))
    }

    /// The tokens of these sentences, with the marks of beginning and end.
    pub fn encode(&self, sentences: &[&str]) -> Result<Tokens> {
        let rows = self.0.encode_batch(sentences.to_vec(), true).map_err(Error::other)?;
        let sizes = [rows.len() as i64, rows.first().map_or(0, |r| r.len() as i64)];
        let matrix = |row: fn(&tokenizers::Encoding) -> &[u32]| {
            Tensor::from_vec(
                rows.iter().flat_map(|r| row(r).iter().map(|&n| i64::from(n))).collect(),
                sizes,
            )
        };
        Ok(Tokens { ids: matrix(|r| r.get_ids()), mask: matrix(|r| r.get_attention_mask()) })
    }
}
