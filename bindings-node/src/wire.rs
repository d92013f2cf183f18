//! One client's way to its server in one environment: what carries the bytes between the driver and the loop.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use bandog::host::LoopWire;

use crate::client::ClientState;
use crate::looped::Loop;
use crate::uv::{Poll, Uv};

/// The wire, and what moves its bytes.
pub(crate) struct Wire {
    pub(crate) driver: LoopWire,
    watch: Watch,
}

/// How the loop hears of its connection.
enum Watch {
    /// It watches the descriptor of the one there is.
    Uv(Rc<Uv>, RefCell<Option<Poll>>),
}

impl Wire {
    pub(crate) fn uv(driver: LoopWire, uv: &Rc<Uv>) -> Self {
        Self { driver, watch: Watch::Uv(uv.clone(), RefCell::default()) }
    }

    /// Connections come and go: sees to it that the loop hears of the one there is.
    pub(crate) fn mend(&self, looped: &Weak<Loop>, client: &Rc<ClientState>) {
        match &self.watch {
            Watch::Uv(uv, slot) => {
                let mut slot = slot.borrow_mut();
                if !slot.as_ref().is_some_and(|poll| self.driver.is_current(poll.watched())) {
                    // The old one first: its number may be the new one's by now.
                    *slot = None;
                    *slot = self.driver.socket().and_then(|watched| uv.watch(looped.clone(), client, &watched));
                }
                if let Some(poll) = &*slot {
                    poll.expect(self.driver.is_clogged());
                }
            }
        }
    }

    /// The loop does not watch any more.
    pub(crate) fn gave_up(&self) {
        let Watch::Uv(_, slot) = &self.watch;
        if let Some(poll) = &*slot.borrow() {
            poll.gave_up();
        }
    }
}
