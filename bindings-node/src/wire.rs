//! One client's way to its server in one environment: what carries the bytes between the driver and the loop.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bandog::Error;
use bandog::host::{LoopWire, Mailbox};
use napi::Env;

use crate::carrier::Conveyor;
use crate::client::ClientState;
use crate::looped::Loop;
use crate::uv::{Poll, Uv};
use crate::words::Words;

/// What carries the bytes of every wire of an environment.
pub(crate) enum Transport {
    /// The driver's own sockets, watched by node's own loop.
    Uv(Rc<Uv>),
    /// Sockets of JS.
    Socket,
}

/// The wire, and what moves its bytes.
pub(crate) struct Wire {
    pub(crate) driver: LoopWire,
    means: Means,
}

enum Means {
    Uv(Rc<Uv>, RefCell<Option<Poll>>),
    Socket(Conveyor),
}

impl Transport {
    /// What users call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Uv(_) => "uv",
            Self::Socket => "socket",
        }
    }
}

impl Wire {
    pub(crate) fn open(transport: &Transport, driver: &bandog::Client, mailbox: &Arc<Mailbox>) -> Result<Self, Error> {
        Ok(match transport {
            Transport::Uv(uv) => {
                Self { driver: LoopWire::open(driver, mailbox)?, means: Means::Uv(uv.clone(), RefCell::default()) }
            }
            Transport::Socket => {
                Self { driver: LoopWire::open_carried(driver, mailbox)?, means: Means::Socket(Conveyor::new()) }
            }
        })
    }

    /// Connections come and go: sees to it that the loop serves the one there is.
    pub(crate) fn mend(&self, looped: &Rc<Loop>, client: &Rc<ClientState>) {
        match &self.means {
            Means::Uv(uv, slot) => {
                let mut slot = slot.borrow_mut();
                if !slot.as_ref().is_some_and(|poll| self.driver.is_current(poll.watched())) {
                    // The old one first: its number may be the new one's by now.
                    *slot = None;
                    *slot = self.driver.socket().and_then(|watched| uv.watch(looped, client, &watched));
                }
                if let Some(poll) = &*slot {
                    poll.expect(self.driver.is_clogged());
                }
            }
            Means::Socket(conveyor) => conveyor.mend(&self.driver, looped, client),
        }
    }

    /// Whether somebody has to [`Wire::flush`] at the end of the turn who was not asked for it yet.
    pub(crate) fn wants_flush(&self) -> bool {
        let wants = self.driver.wants_flush();
        wants || matches!(&self.means, Means::Socket(conveyor) if conveyor.has_output())
    }

    /// Writes what waits.
    pub(crate) fn flush(&self, env: Env) {
        self.driver.flush();
        if let Means::Socket(conveyor) = &self.means {
            conveyor.send(&self.driver, env);
        }
    }

    /// The loop does not watch the descriptor any more.
    pub(crate) fn gave_up(&self) {
        if let Means::Uv(_, slot) = &self.means
            && let Some(poll) = &*slot.borrow()
        {
            poll.gave_up();
        }
    }

    /// Nothing is sent or read any more. What becomes of its calls is for the keeper to find out.
    pub(crate) fn close(&self, words: &Words) {
        match &self.means {
            Means::Uv(_, slot) => drop(slot.take()),
            Means::Socket(conveyor) => conveyor.close(words),
        }
    }
}
