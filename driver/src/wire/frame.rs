//! Where one reply ends, and whether it keeps to the limits (reliability X3). Nothing is allocated here:
//! a declared length only moves a mark. What has been looked at is not looked at again, so a trickle costs
//! no more than a flood.

/// The longest string.
pub(super) const MAX_BULK: usize = 1 << 20;
/// The most elements of one array, set, push or map (keys and values counted).
pub(super) const MAX_ARRAY: usize = 1024;
/// The most arrays inside each other.
pub(super) const MAX_DEPTH: usize = 8;
/// The longest line.
pub(super) const MAX_LINE: usize = 64 << 10;
/// The most bytes of one whole reply: the limits above multiply.
pub(super) const MAX_FRAME: usize = 2 << 20;
/// The most values in one whole reply.
pub(super) const MAX_VALUES: u32 = 16 << 10;

/// Why the bytes are not a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Violation {
    /// Not the protocol at all.
    Nonsense,
    /// Too long, too many or too deep.
    TooLarge,
}

/// Finds the end of the value that begins where the last one ended.
#[derive(Default)]
pub(super) struct Scanner {
    /// The start of the item being read; what is before it is done.
    at: usize,
    /// No line of this item ends before here.
    searched: usize,
    /// The end of the string being read, its line end counted in.
    body: Option<usize>,
    /// Values still to come at each level.
    pending: [u32; MAX_DEPTH],
    depth: usize,
    values: u32,
}

impl Scanner {
    /// The length of the value at the start of `bytes`, once all of it is there. Call again with the same
    /// bytes and more until then.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<Option<usize>, Violation> {
        loop {
            let end = match self.body {
                Some(end) => end,
                None => match self.line(bytes)? {
                    Some(end) => end,
                    None => return Ok(None),
                },
            };
            if end > MAX_FRAME {
                return Err(Violation::TooLarge);
            }
            if self.body.is_some() {
                let Some(tail) = bytes.get(end - 2..end) else { return Ok(None) };
                if tail != b"\r\n" {
                    return Err(Violation::Nonsense);
                }
                self.body = None;
            }
            self.at = end;
            self.searched = end;
            if self.closes() {
                *self = Self::default();
                return Ok(Some(end));
            }
        }
    }

    /// Reads the line that opens an item, and returns its end.
    fn line(&mut self, bytes: &[u8]) -> Result<Option<usize>, Violation> {
        let Some(&kind) = bytes.get(self.at) else { return Ok(None) };
        if !b"+-:$*_,#!=(%|~>".contains(&kind) {
            return Err(Violation::Nonsense);
        }
        let from = self.searched.max(self.at + 1);
        let Some(end) = line_end(bytes, from) else {
            if bytes.len() - self.at > MAX_LINE {
                return Err(Violation::TooLarge);
            }
            // The last byte may be the first half of a line end.
            self.searched = bytes.len().saturating_sub(1).max(self.at + 1);
            return Ok(None);
        };
        if end - self.at > MAX_LINE {
            return Err(Violation::TooLarge);
        }
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Violation::TooLarge);
        }
        let text = &bytes[self.at + 1..end - 2];
        match kind {
            b'$' | b'!' | b'=' => {
                if kind == b'$' && text == b"-1" {
                    return Ok(Some(end));
                }
                let length = length(text, MAX_BULK)?;
                self.body = Some(end + length + 2);
                Ok(self.body)
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                if kind == b'*' && text == b"-1" {
                    return Ok(Some(end));
                }
                let length = length(text, MAX_ARRAY)?;
                let children = match kind {
                    b'%' => length * 2,
                    // An attribute is followed by the value it belongs to.
                    b'|' => length * 2 + 1,
                    _ => length,
                };
                if children > MAX_ARRAY || (children > 0 && self.depth == MAX_DEPTH) {
                    return Err(Violation::TooLarge);
                }
                if children > 0 {
                    // One more than there are: the array itself is counted off with its last child.
                    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_ARRAY")]
                    let pending = children as u32 + 1;
                    self.pending[self.depth] = pending;
                    self.depth += 1;
                }
                Ok(Some(end))
            }
            _ => Ok(Some(end)),
        }
    }

    /// Counts off one item; whether it was the last of the whole value.
    fn closes(&mut self) -> bool {
        while let Some(level) = self.depth.checked_sub(1) {
            self.pending[level] -= 1;
            if self.pending[level] > 0 {
                return false;
            }
            self.depth = level;
        }
        true
    }
}

fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == b'\n')?;
        if bytes[at - 1] == b'\r' {
            return Some(at + 1);
        }
        at += 1;
    }
}

/// A length in plain digits: no sign, no space, nothing that overflows.
fn length(digits: &[u8], max: usize) -> Result<usize, Violation> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Violation::Nonsense);
    }
    let mut length = 0;
    for digit in digits {
        length = length * 10 + usize::from(digit - b'0');
        if length > max {
            return Err(Violation::TooLarge);
        }
    }
    Ok(length)
}
