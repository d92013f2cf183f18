//! Where one RESP frame ends and the next begins; nothing about what it means.

/// Cuts a byte stream into frames. A stream that does not start like RESP (TLS, nonsense) is handed on as it comes.
#[derive(Debug, Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    opaque: bool,
}

impl Frames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        if self.buffer.is_empty() {
            return None;
        }
        let end = if self.opaque { Some(self.buffer.len()) } else { self.measure() }?;
        let rest = self.buffer.split_off(end);
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    /// What is left of a stream that ended in the middle of a frame.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn measure(&mut self) -> Option<usize> {
        match skip(&self.buffer, 0) {
            Skip::End(end) => Some(end),
            Skip::Short => None,
            Skip::NotResp => {
                self.opaque = true;
                Some(self.buffer.len())
            }
        }
    }
}

enum Skip {
    End(usize),
    Short,
    NotResp,
}

/// Skips one value at `at`. Works without a stack: `open` counts the values still expected.
fn skip(bytes: &[u8], mut at: usize) -> Skip {
    let mut open = 1_u64;
    while open > 0 {
        let Some(&kind) = bytes.get(at) else { return Skip::Short };
        if !b"*%~>|$!=+-:_#,(".contains(&kind) {
            return Skip::NotResp;
        }
        let Some(line) = bytes[at..].windows(2).position(|pair| pair == b"\r\n") else { return Skip::Short };
        let head = &bytes[at + 1..at + line];
        at += line + 2;
        open -= 1;
        if b"+-:_#,(".contains(&kind) {
            continue;
        }
        // Length -1 is RESP2's null.
        let Some(length) = std::str::from_utf8(head).ok().and_then(|text| text.parse::<i64>().ok()) else {
            return Skip::NotResp;
        };
        let length = u64::try_from(length).ok();
        match (kind, length) {
            (b'$' | b'!' | b'=', Some(length)) => at += usize::try_from(length).unwrap_or(usize::MAX / 2) + 2,
            (b'*' | b'~' | b'>', Some(length)) => open += length,
            (b'%', Some(length)) => open += 2 * length,
            // An attribute stands before the value that it belongs to.
            (b'|', Some(length)) => open += 2 * length + 1,
            _ => {}
        }
    }
    if at <= bytes.len() { Skip::End(at) } else { Skip::Short }
}

/// The arguments of a request, as far as they are bulk strings.
pub(super) fn arguments(frame: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut at = frame.windows(2).position(|pair| pair == b"\r\n").map_or(frame.len(), |line| line + 2);
    while frame.get(at) == Some(&b'$') {
        let Skip::End(end) = skip(frame, at) else { break };
        let body = frame[at..].windows(2).position(|pair| pair == b"\r\n").map_or(end, |line| at + line + 2);
        found.push(frame.get(body..end - 2).unwrap_or_default());
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Frames::default();
        frames.push(bytes);
        std::iter::from_fn(|| frames.next()).collect()
    }

    #[test]
    fn every_kind_of_frame_is_found_at_every_split() {
        let whole: [&[u8]; 9] = [
            b"+OK\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            b"%1\r\n+k\r\n*2\r\n_\r\n#t\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n",
            b"|1\r\n+ttl\r\n:3\r\n:7\r\n",
            b"*0\r\n",
        ];
        let stream = whole.concat();
        assert_eq!(cut(&stream), whole);
        for at in 0..stream.len() {
            let mut frames = Frames::default();
            frames.push(&stream[..at]);
            let mut seen: Vec<_> = std::iter::from_fn(|| frames.next()).collect();
            frames.push(&stream[at..]);
            seen.extend(std::iter::from_fn(|| frames.next()));
            assert_eq!(seen, whole, "split at {at}");
        }
    }

    #[test]
    fn what_is_not_resp_passes_as_it_is() {
        assert_eq!(cut(b"\x16\x03\x01"), [b"\x16\x03\x01"]);
        assert_eq!(cut(b"*x\r\n"), [b"*x\r\n"]);
    }

    #[test]
    fn arguments_are_the_bulk_strings() {
        assert_eq!(arguments(b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n"), [b"GET".as_slice(), b"\r\n"]);
        assert!(arguments(b"PING\r\n").is_empty());
    }
}
