//! Who holds: the local owner, who may re-enter, and the wire owner, whom the server knows.

use core::fmt;

use crate::text::Text;

/// Who may re-enter a lock inside this process: a thread, a task, a greenlet or a scope, by a number of
/// the host's own making. Numbers are never used twice in one process; the engine only compares them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LocalOwner(pub u64);

/// The id of one engine: a version-4 UUID in lower-case canonical text, new for each client and new
/// after a fork (protocol section 1.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub [u8; 16]);

impl ClientId {
    /// The canonical text. It goes out with every request, so it is made without a formatter.
    #[must_use]
    pub const fn text(self) -> [u8; 36] {
        let mut text = [b'-'; 36];
        let mut byte = 0;
        while byte < 16 {
            [text[PLACES[byte]], text[PLACES[byte] + 1]] = HEX[self.0[byte] as usize];
            byte += 1;
        }
        text
    }
}

/// Where each byte of an id stands in its text.
const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// The two digits of each byte.
static HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut hex = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        hex[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    hex
};

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Logs show eight characters (reliability X9).
        let text = self.to_string();
        write!(f, "{}..", &text[..8])
    }
}

/// The number of one hold, drawn anew for every fresh acquisition and kept until its outermost release.
/// With the client id in front it is the field of the lock's hash: `<uuid>:<number>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HoldNumber(pub u64);

/// The owner as the server knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WireOwner {
    /// Which client.
    pub client: ClientId,
    /// Which of its holds.
    pub number: HoldNumber,
}

impl WireOwner {
    pub(crate) fn text(&self) -> Text<57> {
        let mut text = Text::new();
        text.push(&self.client.text());
        text.push(b":");
        text.number(self.number.0);
        text
    }
}

impl fmt::Display for WireOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In one piece: this is made with every grant.
        f.write_str(str::from_utf8(self.text().bytes()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_owner_has_redissons_shape() {
        let client =
            ClientId([0x28, 0x54, 0x75, 0xda, 0x91, 0x52, 0x4c, 0x83, 0x82, 0x2a, 0x67, 0xee, 0x2f, 0x11, 0x6a, 0x79]);
        let owner = WireOwner { client, number: HoldNumber(52) };
        assert_eq!(owner.to_string(), "285475da-9152-4c83-822a-67ee2f116a79:52");
        assert_eq!(format!("{client:?}"), "285475da..");
    }
}
