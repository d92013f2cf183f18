//! Short texts that are made often.

/// A text on the stack.
#[derive(Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    room: [u8; N],
    used: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Self {
        Self { room: [0; N], used: 0 }
    }

    /// `N` is the longest text there can be: going past it is a bug, and panics.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.room[self.used..][..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    pub(crate) fn number(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.push(&digits[first..]);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.room[..self.used]
    }
}
