//! Names of bounded length, as shared memory can keep them.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A text of at most N bytes; a longer one is cut at a character.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const N: usize> {
    length: u16,
    bytes: [u8; N],
}

/// Of a queue or a task type.
pub type Name = Text<63>;

impl<const N: usize> Text<N> {
    pub const EMPTY: Self = Text { length: 0, bytes: [0; N] };

    pub fn new(text: &str) -> Self {
        let end = (0..=N.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let mut bytes = [0; N];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Text { length: end as u16, bytes }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// The same in every process of a server.
pub fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_and_cut_at_a_character() {
        assert_eq!(Name::new("reports").as_str(), "reports");
        assert_eq!(Text::<4>::new("abcé").as_str(), "abc");
        assert!(Name::new("").is_empty());
    }
}
